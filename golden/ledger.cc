#include "golden/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "caches/check.h"
#include "caches/digest.h"
#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kMergeRemedy =
    "keep the lines of the branch that you merge into, drop yours, and accept your files again";
constexpr std::string_view kChainRemedy =
    "restore the ledger from git: its lines are written by `lockstep golden accept` alone";

// What "previous" is in the first line.
constexpr std::string_view kStart = "00000000000000000000000000000000";

std::string DigestOfText(std::string_view text) {
  return DigestOfBytes(std::as_bytes(std::span(text))).Hex();
}

// The line as it is written, but for its digest.
ordered_json Undigested(const LedgerEntry& entry) {
  ordered_json json = {
      {"date", entry.date},        {"author", entry.author},  {"case", entry.golden.scenario},
      {"file", entry.golden.file}, {"old", entry.old_digest}, {"new", entry.new_digest},
      {"reason", entry.reason}};
  if (!entry.issue.empty()) json["issue"] = entry.issue;
  json["arithmetic"] = entry.arithmetic;
  json["previous"] = entry.previous;
  return json;
}

std::string LineOf(const LedgerEntry& entry) {
  ordered_json json = Undigested(entry);
  json["digest"] = entry.digest;
  return json.dump();
}

std::string DigestOfEntry(const LedgerEntry& entry) {
  return DigestOfText(Undigested(entry).dump());
}

bool IsMergeMarker(std::string_view line) {
  constexpr std::string_view kMarkers[] = {"<<<<<<<", "|||||||", "=======", ">>>>>>>"};
  return std::ranges::any_of(kMarkers, [&](auto marker) { return line.starts_with(marker); });
}

LedgerEntry ParseLine(std::string_view line, const std::string& where) {
  if (IsMergeMarker(line)) {
    throw Error({where, "a marker of a merge conflict", std::string(kMergeRemedy)});
  }
  LedgerEntry entry;
  try {
    const auto json = ordered_json::parse(line);
    entry = {.date = json.at("date"),
             .author = json.at("author"),
             .golden = {json.at("case"), json.at("file")},
             .old_digest = json.at("old"),
             .new_digest = json.at("new"),
             .reason = json.at("reason"),
             .issue = json.value("issue", ""),
             .arithmetic = json.at("arithmetic"),
             .previous = json.at("previous"),
             .digest = json.at("digest")};
  } catch (const nlohmann::json::exception&) {
    throw Error({where, "is no entry of the ledger", std::string(kChainRemedy)});
  }
  // Other keys, another order, blanks: nobody who reads the file by eye should wonder.
  if (LineOf(entry) != line) {
    throw Error({where, "is not written as the ledger writes it", std::string(kChainRemedy)});
  }
  return entry;
}

}  // namespace

std::string GoldenTextDigest(std::string_view text) { return DigestOfText(text); }

Ledger Ledger::Parse(std::string_view text, const std::string& where) {
  Ledger ledger;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string place = fmt::format("{}:{}", where, number);
    const size_t end = text.find('\n');
    LedgerEntry entry = ParseLine(text.substr(0, end), place);
    if (end == text.npos) {
      throw Error({place, "the line has no end", std::string(kChainRemedy)});
    }
    text.remove_prefix(end + 1);
    if (DigestOfEntry(entry) != entry.digest) {
      throw Error({place, "the line was edited: its digest is another", std::string(kChainRemedy)});
    }
    const std::string previous =
        ledger.entries_.empty() ? std::string(kStart) : ledger.entries_.back().digest;
    if (entry.previous != previous) {
      throw Error({place,
                   "does not follow the line before it: one was removed, added or moved here",
                   fmt::format("{}; after a merge, {}", kChainRemedy, kMergeRemedy)});
    }
    if (entry.old_digest != ledger.DigestOf(entry.golden)) {
      throw Error({place, "its old digest is not what the ledger said of the file before",
                   std::string(kChainRemedy)});
    }
    ledger.Append(std::move(entry));
  }
  return ledger;
}

Ledger Ledger::Read(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  return Parse(ReadWholeTextFile(path), path);
}

void Ledger::Append(LedgerEntry entry) {
  LS_CHECK(entry.old_digest == DigestOf(entry.golden), "{}: old digest {}, ledger {}",
           entry.golden.Text(), entry.old_digest, DigestOf(entry.golden));
  entry.previous = entries_.empty() ? std::string(kStart) : entries_.back().digest;
  entry.digest = DigestOfEntry(entry);
  text_ += LineOf(entry) + "\n";
  last_[entry.golden] = entries_.size();
  entries_.push_back(std::move(entry));
}

const LedgerEntry* Ledger::Last(const GoldenName& golden) const {
  const auto it = last_.find(golden);
  return it == last_.end() ? nullptr : &entries_[it->second];
}

std::string Ledger::DigestOf(const GoldenName& golden) const {
  const LedgerEntry* last = Last(golden);
  return last == nullptr ? std::string(kNoGolden) : last->new_digest;
}

std::vector<GoldenName> Ledger::Present() const {
  std::vector<GoldenName> names;
  for (const auto& [name, index] : last_) {
    if (entries_[index].new_digest != kNoGolden) names.push_back(name);
  }
  return names;
}

std::vector<LedgerFinding> CompareWithLedger(const Ledger& ledger,
                                             const std::map<GoldenName, std::string>& goldens) {
  constexpr std::string_view kRemedy =
      "restore it from git, or say why: lockstep golden accept {} --reason TEXT";
  std::vector<LedgerFinding> findings;
  const auto add = [&](const GoldenName& golden, std::string_view what) {
    findings.push_back({golden, fmt::format("{}: {} ({})", golden.Text(), what,
                                            fmt::format(fmt::runtime(kRemedy), golden.Text()))});
  };
  for (const auto& [golden, digest] : goldens) {
    const LedgerEntry* last = ledger.Last(golden);
    if (last == nullptr) {
      add(golden, "the ledger has no reason for it");
    } else if (last->new_digest == kNoGolden) {
      add(golden, "it is there, but the ledger says that it was removed");
    } else if (last->new_digest != digest) {
      add(golden, fmt::format("it was changed since it was accepted on {}", last->date));
    }
  }
  for (const GoldenName& golden : ledger.Present()) {
    if (!goldens.contains(golden)) add(golden, "the ledger says that it is there, and it is not");
  }
  return findings;
}

}  // namespace lockstep
