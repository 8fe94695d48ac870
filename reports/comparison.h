// Two runs side by side, and what may be said about their difference.
//
// Samples of one round were taken next to each other (one side, twice the other, the first again:
// ABBA), so that a drift of the machine hits both sides alike; which side is first is drawn for two
// rounds, and turned round in the second, so that a place in the round does so too. A round whose
// samples saw different regimes of the machine (another placement of cores, other tenants) is left
// out. What is compared is the cost: time, or the time that a rate stands for, as a fraction of the
// machine's limit where both sides have it.
#ifndef LOCKSTEP_REPORTS_COMPARISON_H_
#define LOCKSTEP_REPORTS_COMPARISON_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reports/results.h"

namespace lockstep {

// Within which two states count as one regime. Values that one of them lacks do not count. Of
// samples in rounds this is the least: where the two samples of one side of a round lie further
// apart as a rule, the machine is so restless, and what it does as a rule is no change.
struct RegimeTolerance {
  double read_bandwidth_one = 1.25;  // the larger over the smaller
  double read_bandwidth_all = 1.25;
  double barrier_seconds = 1.6;
  double others = 0.2;  // difference of shares
  double steal = 0.2;
};
bool SameRegime(const MachineState& a, const MachineState& b, const RegimeTolerance& tolerance);

struct ComparisonOptions {
  // How often a comparison of equal builds may call any benchmark slower or faster.
  double alpha = 0.005;
  // Up to this much more or less cost is called the same.
  double within = 0.03;
  // Of a benchmark that A/A comparisons showed to differ by more than `within` without a reason: up
  // to it nothing is slower or faster.
  std::map<std::string, double> noise_floors = {};
  // A floor makes what is called the same no wider than this: where equal builds differ by more, a
  // difference below the floor is not decided.
  double same_max = 0.08;
  // 0: these samples are looked at once. k > 0: the k-th look at a growing series, which gets
  // alpha / (k * (k + 1)); all looks together get alpha (Lan & DeMets, "Discrete Sequential
  // Boundaries for Clinical Trials", 1983, with Bonferroni's bound in place of the joint law).
  int32_t look = 0;
  int32_t resamples = 2000;  // of the bootstrap
  uint64_t seed = 1;         // of the bootstrap
  RegimeTolerance regimes = {};
  // By how much a counter may grow; 0 where nothing is named. Counts of instructions differ by a
  // few where addresses do.
  std::map<std::string, double> counter_tolerances = {{"instructions", 0.005}};
  bool across_machines = false;  // compare runs of different fingerprints
  // The subject is the later of the two: what it alone has is new.
  bool subject_is_newer = false;
  // What else one side may have alone, as OneSided::Name() says it.
  std::set<std::string> added = {};  // the subject
  std::set<std::string> gone = {};   // the baseline
};

enum class BenchVerdict { kFaster, kSlower, kSame, kInconclusive };
std::string_view BenchVerdictName(BenchVerdict verdict);

struct CounterChange {
  std::string name;
  double baseline = 0;
  double subject = 0;
  bool worse = false;  // grew by more than its tolerance: a regression, whatever the time says
};

struct BenchComparison {
  std::string name;
  std::string unit;
  BenchVerdict verdict = BenchVerdict::kInconclusive;
  double baseline = 0;  // medians of the samples that count, in the unit
  double subject = 0;
  bool by_limit = false;  // fractions of the limit were compared
  // Cost of the subject over that of the baseline, the median over rounds, with the interval that
  // holds it at the level of this look.
  double ratio = 1, low = 1, high = 1;
  double p_value = 1;     // adjusted for all benchmarks of the comparison
  double within = 0;      // what counts as the same here: option, or noise floor up to its limit
  double floor = 0;       // what may be slower or faster by more: `within`, or a larger noise floor
  double detectable = 0;  // the least excess cost that so many rounds find 4 times in 5
  double noise = 0;       // what equal builds would show here at most, at the level of this look
  int32_t rounds = 0;     // that count
  int32_t rounds_left = 0;  // left out: the regime changed within them
  // Inconclusive, between `within` and `floor`: no number of rounds decides.
  bool in_noise = false;
  // About how many more rounds may decide; only of an inconclusive one with a ratio, outside noise.
  std::optional<int32_t> rounds_needed = {};
  std::vector<CounterChange> counters = {};  // those that differ
  bool bits_changed = false;
  std::string baseline_digest = {}, subject_digest = {};

  bool counters_worse() const;
  bool regressed() const;  // slower, or a counter grew, or the bits changed
};

// What one side alone has: a benchmark, or a counter or the digest of one that both have.
struct OneSided {
  std::string benchmark;
  std::string part = {};  // the counter's name, "digest"; empty: the whole benchmark
  std::string text = {};  // what it is there, for people; may be empty

  std::string Name() const;  // "BENCHMARK" or "BENCHMARK#PART"

  friend bool operator==(const OneSided&, const OneSided&) = default;
};

struct Comparison {
  enum class Outcome { kHolds, kRegression, kInconclusive };

  BenchRun baseline = {}, subject = {};  // with all samples
  ComparisonOptions options = {};
  bool identical = false;                        // the same executable, byte for byte
  bool interleaved = false;                      // every benchmark has rounds
  std::vector<BenchComparison> benchmarks = {};  // of both sides, in the baseline's order
  std::vector<OneSided> added = {};              // of the subject alone: told, and never a failure
  std::vector<OneSided> gone = {};               // of the baseline alone, as the options allow

  Outcome outcome() const;
};

// Throws Error for a benchmark, a counter or a digest of one side alone that the options do not
// allow; for a name in them that is none of these; for a benchmark with another unit or direction
// on the other side; and when there is none that both have. CheckNames looks at the benchmarks'
// names alone, before anything is measured.
void CheckNames(const BenchRun& baseline, const BenchRun& subject,
                const ComparisonOptions& options);
void CheckSides(const BenchRun& baseline, const BenchRun& subject,
                const ComparisonOptions& options);

// Throws Error as CheckSides does, and when the runs are of different machines and the options do
// not allow it.
Comparison Compare(BenchRun baseline, BenchRun subject, const ComparisonOptions& options);

// The noise floors that an A/A comparison shows: for each benchmark the farther end of its interval
// from 1. REQUIRES: aa.identical.
std::map<std::string, double> NoiseFloors(const Comparison& aa);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_COMPARISON_H_
