#include "golden/publish.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep {
namespace {

void Remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return;
  throw Error({path, fmt::format("cannot remove it: {}", std::strerror(errno)),
               "let its folder be one that can be written"});
}

// What WriteWholeFile leaves when it is killed. Nobody else writes these paths under the lock.
bool RemoveTemporaries(const std::string& path) {
  int count = 0;
  while (::unlink(fmt::format("{}.{}.tmp", path, count).c_str()) == 0) ++count;
  return count > 0;
}

// The digest of a file's text, kNoGolden when there is none.
std::string DigestAt(const std::string& path) {
  if (path.empty() || !std::filesystem::exists(path)) return std::string(kNoGolden);
  return GoldenTextDigest(ReadWholeTextFile(path));
}

void Put(const GoldenChange& change) {
  if (change.text) {
    WriteWholeTextFile(change.place.path, *change.text);
  } else {
    Remove(change.place.path);
  }
  if (!change.place.pending_path.empty()) Remove(change.place.pending_path);
}

}  // namespace

GoldenLock::GoldenLock(const std::string& folder)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) {
    throw Error({folder, fmt::format("cannot open the folder: {}", std::strerror(errno)),
                 "give the folder of the golden files"});
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd_);
    throw Error({folder, "somebody is accepting or rejecting golden files right now",
                 "wait until it is done"});
  }
}

GoldenLock::~GoldenLock() { ::close(fd_); }

void Publish(const std::string& ledger_path, std::span<const GoldenChange> changes,
             const Acceptance& acceptance) {
  Ledger ledger = Ledger::Read(ledger_path);
  for (const GoldenChange& change : changes) {
    ledger.Append(
        {.date = acceptance.date,
         .author = acceptance.author,
         .golden = change.place.golden,
         .old_digest = ledger.DigestOf(change.place.golden),
         .new_digest = change.text ? GoldenTextDigest(*change.text) : std::string(kNoGolden),
         .reason = acceptance.reason,
         .issue = acceptance.issue,
         .arithmetic = acceptance.arithmetic});
  }
  WriteWholeTextFile(ledger_path, ledger.text());
  for (const GoldenChange& change : changes) Put(change);
}

std::vector<GoldenName> FinishInterrupted(const std::string& ledger_path,
                                          std::span<const GoldenPlace> places) {
  RemoveTemporaries(ledger_path);
  const Ledger ledger = Ledger::Read(ledger_path);
  std::vector<GoldenName> finished;
  for (const GoldenPlace& place : places) {
    RemoveTemporaries(place.path);
    const LedgerEntry* last = ledger.Last(place.golden);
    if (last == nullptr) continue;
    const std::string golden = DigestAt(place.path);
    const std::string pending = DigestAt(place.pending_path);
    if (last->new_digest == kNoGolden) {
      if (golden == kNoGolden || golden != last->old_digest) continue;
      Put({place, std::nullopt});
    } else if (pending == last->new_digest) {
      Put({place, ReadWholeTextFile(place.pending_path)});
    } else {
      continue;
    }
    finished.push_back(place.golden);
  }
  return finished;
}

}  // namespace lockstep
