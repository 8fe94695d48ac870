#include "properties/checked_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "caches/cache_file.h"
#include "caches/digest.h"
#include "caches/memory_watch.h"
#include "properties/isolated_run.h"
#include "properties/runner/run.h"
#include "properties/runner/write_set.h"

namespace lockstep {
namespace {

using runner::Sequence;
using runner::WriteRule;

// Everything that shows of a state and is bytes: hashes and the cache file.
Digest DigestOfState(std::span<const Sequence> sequences, bool saves) {
  DigestBuilder builder;
  for (const Sequence& s : sequences) {
    const auto specified = [](const std::set<int32_t>& rows) { return rows.empty(); };
    if (!std::ranges::all_of(s.unspecified, specified)) continue;
    for (const Digest& digest : {DigestOfCache(*s.subject), s.subject->StorageDigest()}) {
      builder.AddU64(digest.high);
      builder.AddU64(digest.low);
    }
    if (!saves) continue;
    StateWriter writer;
    s.subject->SaveState(&writer);
    builder.AddBytes(writer.Finish());
  }
  return builder.Finish();
}

class MemoryProbe : public runner::Probe {
 public:
  // `expected`: the digests of another run, or null.
  MemoryProbe(const MemoryWatch& watch, bool saves, const std::vector<Digest>* expected)
      : watch_(watch), saves_(saves), expected_(expected), write_set_(watch) {}

  void Before(std::span<const Sequence> sequences) override { write_set_.Before(sequences); }

  std::optional<ScriptFinding> After(ScriptOpKind kind, Outcome outcome, const WriteRule& rule,
                                     std::span<const Sequence> sequences) override {
    counts_.buffers_watched += static_cast<int64_t>(watch_.live().size());
    const bool refused = outcome > Outcome::kGranted;
    if (auto what = write_set_.After(rule, sequences)) {
      return ScriptFinding{.clause = std::string(WriteClause(kind, refused)), .what = *what};
    }
    if (const auto faults = watch_.Audit(); !faults.empty()) {
      return ScriptFinding{.clause = std::string(WriteClause(kind, refused)), .what = faults[0]};
    }
    digests_.push_back(DigestOfState(sequences, saves_));
    const size_t at = digests_.size() - 1;
    if (expected_ == nullptr) return std::nullopt;
    ++counts_.states_hashed;
    if (at < expected_->size() && digests_[at] == (*expected_)[at]) return std::nullopt;
    return ScriptFinding{.clause = "X2",
                         .what = "hashes or the cache file depend on memory that holds no row"};
  }

  const std::vector<Digest>& digests() const { return digests_; }
  MemoryCounts counts() const {
    MemoryCounts counts = counts_;
    counts.bytes_changed = write_set_.bytes_changed();
    return counts;
  }

 private:
  const MemoryWatch& watch_;
  bool saves_;
  const std::vector<Digest>* expected_;
  runner::WriteSet write_set_;
  std::vector<Digest> digests_;  // after each operation
  MemoryCounts counts_;
};

std::string FindingText(const ScriptFinding& finding) {
  return fmt::format("{}\n{}\n{}", finding.op, finding.clause, finding.what);
}

ScriptFinding ParseFinding(const std::string& text) {
  const size_t first = text.find('\n');
  const size_t second = text.find('\n', first + 1);
  ScriptFinding finding;
  std::from_chars(text.data(), text.data() + first, finding.op);
  finding.clause = text.substr(first + 1, second - first - 1);
  finding.what = text.substr(second + 1);
  return finding;
}

}  // namespace

MemoryCounts& MemoryCounts::operator+=(const MemoryCounts& other) {
  bytes_changed += other.bytes_changed;
  states_hashed += other.states_hashed;
  buffers_watched += other.buffers_watched;
  return *this;
}

CheckedRun RunScriptChecked(const CacheScript& script, const ScriptSubject& subject,
                            uint64_t seed) {
  CheckedRun checked;
  std::vector<Digest> digests;
  for (const bool second : {false, true}) {
    const bool after = (seed % 2 == 0) != second;
    const MemoryWatch watch({.guard = after ? GuardPages::kAfter : GuardPages::kBefore,
                             .poison = static_cast<unsigned char>(second ? 0x5a : 0xff)});
    MemoryProbe probe(watch, subject.saves, second ? &digests : nullptr);
    checked.run = runner::RunWithProbe(script, subject, &probe);
    checked.memory += probe.counts();
    if (checked.run.finding) return checked;
    digests = probe.digests();
  }
  return checked;
}

ScriptJudge CheckedJudge(const ScriptSubject& subject, int32_t seconds_max) {
  return [subject, seconds_max](const CacheScript& script) -> std::optional<ScriptFinding> {
    const IsolatedResult run = RunIsolated(
        [&]() -> std::string {
          const auto finding = RunScriptChecked(script, subject).run.finding;
          return finding ? FindingText(*finding) : "";
        },
        seconds_max);
    const auto last = static_cast<int32_t>(script.ops.size()) - 1;
    if (run.end == IsolatedResult::End::kSignal) {
      return ScriptFinding{last, "crash", "the subject ended by " + SignalName(run.signal)};
    }
    if (run.end == IsolatedResult::End::kTimeout) {
      return ScriptFinding{last, "hang", fmt::format("no return in {} s", seconds_max)};
    }
    if (run.output.empty()) return std::nullopt;
    return ParseFinding(run.output);
  };
}

}  // namespace lockstep
