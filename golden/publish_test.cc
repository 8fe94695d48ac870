// Kills a process at every call that changes the disk, and looks at what it left. The linker sends
// those calls of the whole program through the functions below (--wrap in CMakeLists.txt).
#include "golden/publish.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdarg>
#include <filesystem>
#include <functional>
#include <set>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"

namespace lockstep {
namespace {

// Which of the wrapped calls is the last; 0: none. A write dies with half of its bytes written.
int calls_left = 0;

// Whether the process dies at this call.
bool DiesHere() { return calls_left > 0 && --calls_left == 0; }

[[noreturn]] void Die() {
  ::raise(SIGKILL);
  LS_CHECK(false, "survived");
  std::abort();
}

void MayDie() {
  if (DiesHere()) Die();
}

}  // namespace

extern "C" {

int __real_open(const char* path, int flags, ...);
ssize_t __real_write(int fd, const void* bytes, size_t size);
int __real_close(int fd);
int __real_rename(const char* from, const char* to);
int __real_unlink(const char* path);

int __wrap_open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  if ((flags & O_CREAT) != 0) MayDie();
  return __real_open(path, flags, mode);
}

ssize_t __wrap_write(int fd, const void* bytes, size_t size) {
  if (DiesHere()) {
    __real_write(fd, bytes, size / 2);
    Die();
  }
  return __real_write(fd, bytes, size);
}

int __wrap_fsync(int) {
  MayDie();
  return 0;  // a kill loses nothing that was written: only a loss of power asks for the real one
}

int __wrap_close(int fd) {
  MayDie();
  return __real_close(fd);
}

int __wrap_rename(const char* from, const char* to) {
  MayDie();
  return __real_rename(from, to);
}

int __wrap_unlink(const char* path) {
  MayDie();
  return __real_unlink(path);
}
}

namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::Eq;
using testing::IsEmpty;

const GoldenName kChanged{"a", "f32.golden"};
const GoldenName kNew{"b", "f32.golden"};
const GoldenName kRemoved{"c", "f32.golden"};

const Acceptance kFirst{.date = "2026-11-30T10:00:00Z",
                        .author = "Ada <ada@example.org>",
                        .reason = "first recording of the case",
                        .issue = {},
                        .arithmetic = 1};
const Acceptance kSecond{.date = "2026-11-30T11:00:00Z",
                         .author = "Bob <bob@example.org>",
                         .reason = "RoPE before the bias",
                         .issue = "17",
                         .arithmetic = 1};

class PublishTest : public testing::Test {
 protected:
  std::string LedgerPath() const { return folder_ / "ledger.jsonl"; }

  GoldenPlace Place(const GoldenName& golden) const {
    const std::string path = folder_ / golden.scenario / golden.file;
    return {golden, path, path + ".pending"};
  }
  std::vector<GoldenPlace> Places() const {
    return {Place(kChanged), Place(kNew), Place(kRemoved)};
  }

  // Two accepted goldens, and pending files for what kSecond accepts.
  void MakeTree() {
    std::filesystem::remove_all(folder_);
    for (const GoldenPlace& place : Places()) {
      std::filesystem::create_directories(std::filesystem::path(place.path).parent_path());
    }
    Publish(LedgerPath(),
            std::vector<GoldenChange>{{Place(kChanged), "old\n"}, {Place(kRemoved), "gone\n"}},
            kFirst);
    WriteWholeTextFile(Place(kChanged).pending_path, "new\n");
    WriteWholeTextFile(Place(kNew).pending_path, "added\n");
  }

  std::vector<GoldenChange> Changes() const {
    return {{Place(kChanged), "new\n"}, {Place(kNew), "added\n"}, {Place(kRemoved), std::nullopt}};
  }
  void AcceptAll() const {
    const GoldenLock lock(folder_);
    Publish(LedgerPath(), Changes(), kSecond);
  }
  void Finish() const {
    const GoldenLock lock(folder_);
    FinishInterrupted(LedgerPath(), Places());
  }

  static std::string TextAt(const std::string& path) {
    return std::filesystem::exists(path) ? ReadWholeTextFile(path) : "(absent)";
  }
  // The golden files in the order of Places.
  std::vector<std::string> Goldens() const {
    std::vector<std::string> texts;
    for (const GoldenPlace& place : Places()) texts.push_back(TextAt(place.path));
    return texts;
  }
  std::vector<std::string> FilesIn(const std::filesystem::path& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) {
        names.push_back(std::filesystem::relative(entry.path(), folder).string());
      }
    }
    std::ranges::sort(names);
    return names;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

// True when the child died at wrapped call `number` of `work`, false when it came to its end first.
bool KilledAt(int number, const std::function<void()>& work) {
  const pid_t child = ::fork();
  LS_CHECK(child >= 0, "cannot fork");
  if (child == 0) {
    calls_left = number;
    work();
    ::_exit(0);
  }
  int status = 0;
  LS_CHECK(::waitpid(child, &status, 0) == child, "lost the child {}", child);
  LS_CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0,
           "the child ended with status {}", status);
  return WIFSIGNALED(status);
}

TEST_F(PublishTest, AcceptedFilesAreThereWithTheirReasons) {
  MakeTree();
  AcceptAll();
  EXPECT_THAT(Goldens(), ElementsAre("new\n", "added\n", "(absent)"));
  EXPECT_THAT(FilesIn(folder_), ElementsAre("a/f32.golden", "b/f32.golden", "ledger.jsonl"));
  const Ledger ledger = Ledger::Read(LedgerPath());
  ASSERT_EQ(ledger.entries().size(), 5u);
  EXPECT_EQ(ledger.Last(kChanged)->old_digest, GoldenTextDigest("old\n"));
  EXPECT_EQ(ledger.Last(kChanged)->new_digest, GoldenTextDigest("new\n"));
  EXPECT_EQ(ledger.Last(kNew)->old_digest, kNoGolden);
  EXPECT_EQ(ledger.Last(kRemoved)->new_digest, kNoGolden);
  for (const LedgerEntry& entry : ledger.entries()) {
    const Acceptance& acceptance = entry.date == kFirst.date ? kFirst : kSecond;
    EXPECT_EQ(entry.author, acceptance.author);
    EXPECT_EQ(entry.reason, acceptance.reason);
    EXPECT_EQ(entry.issue, acceptance.issue);
  }
  EXPECT_THAT(FinishInterrupted(LedgerPath(), Places()), IsEmpty());
}

TEST_F(PublishTest, AKillAtAnyCallLeavesWholeFilesAndWhatCanBeFinished) {
  MakeTree();
  const std::string old_ledger = TextAt(LedgerPath());
  int unfinished = 0;
  int number = 1;
  for (;; ++number) {
    MakeTree();
    if (!KilledAt(number, [&] { AcceptAll(); })) break;
    SCOPED_TRACE(testing::Message() << "killed at call " << number);
    const Ledger ledger = Ledger::Read(LedgerPath());  // throws when it is not whole
    const bool accepted = ledger.text() != old_ledger;
    ASSERT_TRUE(ledger.text().starts_with(old_ledger));
    ASSERT_EQ(ledger.entries().size(), accepted ? 5u : 2u);
    const std::vector<std::string> goldens = Goldens();
    EXPECT_THAT(goldens, ElementsAre(AnyOf("old\n", "new\n"), AnyOf("(absent)", "added\n"),
                                     AnyOf("gone\n", "(absent)")));
    if (!accepted) {  // nothing is in the tree that has no reason
      EXPECT_THAT(goldens, ElementsAre("old\n", "(absent)", "gone\n"));
    }
    unfinished += goldens == std::vector<std::string>{"new\n", "added\n", "(absent)"} ? 0 : 1;
    Finish();
    if (accepted) {
      EXPECT_THAT(Goldens(), ElementsAre("new\n", "added\n", "(absent)"));
      EXPECT_THAT(FilesIn(folder_), ElementsAre("a/f32.golden", "b/f32.golden", "ledger.jsonl"));
    } else {
      EXPECT_THAT(FilesIn(folder_),
                  ElementsAre("a/f32.golden", "a/f32.golden.pending", "b/f32.golden.pending",
                              "c/f32.golden", "ledger.jsonl"));
    }
    EXPECT_THAT(FinishInterrupted(LedgerPath(), Places()), IsEmpty()) << "it was finished";
  }
  EXPECT_GE(number, 20) << "the calls are not wrapped";
  EXPECT_GE(unfinished, 10);
}

TEST_F(PublishTest, AKillWhileFinishingCanBeFinishedToo) {
  int kills = 0;
  std::set<std::vector<std::string>> states;
  for (int number = 1;; ++number) {
    MakeTree();
    if (!KilledAt(number, [&] { AcceptAll(); })) break;
    const bool accepted = Ledger::Read(LedgerPath()).entries().size() == 5;
    std::vector<std::string> state = FilesIn(folder_);
    for (const std::string& text : Goldens()) state.push_back(text);
    if (!accepted || !states.insert(state).second)
      continue;  // nothing to finish, or the same again
    for (int again = 1;; ++again) {
      MakeTree();
      ASSERT_TRUE(KilledAt(number, [&] { AcceptAll(); }));
      if (!KilledAt(again, [&] { Finish(); })) break;
      ++kills;
      Finish();
      ASSERT_THAT(Goldens(), ElementsAre("new\n", "added\n", "(absent)"))
          << "killed at call " << number << ", then at " << again;
      ASSERT_THAT(FilesIn(folder_), ElementsAre("a/f32.golden", "b/f32.golden", "ledger.jsonl"));
    }
  }
  EXPECT_GE(kills, 50);
}

// The pending file was written anew meanwhile, by a binary that computes something else: the
// ledger's text is lost, and nothing may take its place without a reason.
TEST_F(PublishTest, AnotherPendingFileIsNotTakenForTheAcceptedOne) {
  MakeTree();
  const std::vector<GoldenChange> nothing_yet;
  Ledger ledger = Ledger::Read(LedgerPath());
  ledger.Append({.date = kSecond.date,
                 .author = kSecond.author,
                 .golden = kChanged,
                 .old_digest = ledger.DigestOf(kChanged),
                 .new_digest = GoldenTextDigest("something else\n"),
                 .reason = kSecond.reason,
                 .issue = {},
                 .arithmetic = 1});
  WriteWholeTextFile(LedgerPath(), ledger.text());
  EXPECT_THAT(FinishInterrupted(LedgerPath(), Places()), IsEmpty());
  EXPECT_THAT(Goldens(), ElementsAre("old\n", "(absent)", "gone\n"));
  EXPECT_EQ(TextAt(Place(kChanged).pending_path), "new\n");
}

TEST_F(PublishTest, OneAcceptsAtATime) {
  const GoldenLock first(folder_);
  try {
    const GoldenLock second(folder_);
    ADD_FAILURE() << "two at a time";
  } catch (const Error& error) {
    EXPECT_EQ(error.parts().what, "somebody is accepting or rejecting golden files right now");
  }
}

TEST_F(PublishTest, ALedgerThatCannotBeWrittenLeavesTheGoldens) {
  MakeTree();
  std::filesystem::remove(LedgerPath());
  std::filesystem::create_directory(LedgerPath());
  EXPECT_THROW(AcceptAll(), Error);
  EXPECT_THAT(Goldens(), ElementsAre("old\n", "(absent)", "gone\n"));
}

}  // namespace
}  // namespace lockstep
