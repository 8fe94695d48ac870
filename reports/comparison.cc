#include "reports/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "reports/compare/cost_ratio.h"
#include "reports/compare/one_sided.h"
#include "reports/rank_test.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

constexpr int32_t kRoundsMin = 3;  // below which an interval of their median means nothing
constexpr double kPower = 0.8;     // of `detectable`
constexpr double kRoundsNeededMax = 9999;

bool Near(const std::optional<double>& a, const std::optional<double>& b, double factor) {
  if (!a || !b) return true;
  return std::max(*a, *b) <= factor * std::min(*a, *b);
}

bool Close(const std::optional<double>& a, const std::optional<double>& b, double difference) {
  return !a || !b || std::abs(*a - *b) <= difference;
}

double LevelOf(const ComparisonOptions& options) {
  if (options.look == 0) return options.alpha;
  return options.alpha / (options.look * (options.look + 1.0));
}

bool InRounds(const BenchResult& result) {
  return !result.samples.empty() &&
         std::ranges::all_of(result.samples, [](const BenchSample& s) { return s.round >= 0; });
}

void CompareCounters(const BenchResult& baseline, const BenchResult& subject,
                     const ComparisonOptions& options, BenchComparison* out) {
  for (const auto& [name, before] : baseline.counters) {
    const auto found = subject.counters.find(name);
    if (found == subject.counters.end() || found->second == before) continue;
    const double now = found->second;
    const auto known = options.counter_tolerances.find(name);
    const double tolerance = known == options.counter_tolerances.end() ? 0 : known->second;
    out->counters.push_back({.name = name,
                             .baseline = before,
                             .subject = now,
                             .worse = now > before * (1 + tolerance)});
  }
}

// All but what depends on the other benchmarks: the p-value is still the benchmark's own.
BenchComparison CompareOne(const BenchResult& baseline, const BenchResult& subject,
                           const ComparisonOptions& options, const Random& random) {
  BenchComparison out = {.name = baseline.name, .unit = baseline.unit};
  out.baseline_digest = baseline.digest;
  out.subject_digest = subject.digest;
  const bool digests = !baseline.digest.empty() && !subject.digest.empty();
  out.bits_changed = digests && baseline.digest != subject.digest;
  CompareCounters(baseline, subject, options, &out);
  const auto floor = options.noise_floors.find(baseline.name);
  out.within = out.floor = options.within;
  if (floor != options.noise_floors.end()) {
    out.floor = std::max(options.within, floor->second);
    out.within = std::max(options.within, std::min(floor->second, options.same_max));
  }
  const auto samples = internal::SelectSamples(baseline, subject, options.regimes);
  out.rounds = static_cast<int32_t>(samples.blocks.size());
  out.rounds_left = samples.rounds_left;
  out.by_limit = samples.by_limit;
  if (samples.blocks.empty()) return out;
  if (!samples.paired) {
    out.rounds = static_cast<int32_t>(std::min(samples.baseline.size(), samples.subject.size()));
  }
  out.baseline = Quantile(samples.baseline, 0.5);
  out.subject = Quantile(samples.subject, 0.5);
  const double level = LevelOf(options);
  const internal::CostRatio ratio =
      internal::EstimateCostRatio(samples, 1 - level, options.resamples, random);
  out.ratio = std::exp(ratio.log_ratio);
  out.low = std::exp(ratio.low);
  out.high = std::exp(ratio.high);
  out.p_value = BlockedMannWhitney(samples.blocks).p_value;
  // The interval is about `z` standard errors of the median to each side; a true effect is seen in
  // kPower of all cases when it lies z + NormalQuantile(kPower) of them away.
  const double z = NormalQuantile(1 - level / 2);
  const double error = (ratio.high - ratio.low) / 2 / z;
  out.detectable = std::expm1((z + NormalQuantile(kPower)) * error);
  // The standard error of a median of normal values is sqrt(pi / 2) times that of their mean.
  out.noise = std::expm1(z * std::sqrt(std::acos(-1.0) / 2 / out.rounds) * ratio.noise);
  return out;
}

// About so many rounds more bring the nearer bound of the interval over the border: its width goes
// with the square root of their number.
int32_t RoundsNeeded(const BenchComparison& c) {
  const double middle = std::log(c.ratio);
  const bool outside = std::abs(middle) > std::log1p(c.within);
  const double border = std::log1p(outside ? c.floor : c.within);
  const double away = std::abs(std::abs(middle) - border);
  // Between the estimate and the end of the interval that is on the wrong side.
  const double toward_more = std::log(c.high) - middle, toward_less = middle - std::log(c.low);
  const double width = (middle > 0) == outside ? toward_less : toward_more;
  const double factor = away > 0 ? width / away : kRoundsNeededMax;
  const double needed = c.rounds * factor * factor - c.rounds;
  return static_cast<int32_t>(std::clamp(std::ceil(needed), 1.0, kRoundsNeededMax));
}

void Judge(double level, BenchComparison* c) {
  if (c->rounds < kRoundsMin) return;
  const double more = 1 + c->floor, same = 1 + c->within;
  const bool certain = c->p_value <= level;
  const double away = std::max(c->ratio, 1 / c->ratio);
  if (c->low > more && certain) {
    c->verdict = BenchVerdict::kSlower;
  } else if (c->high < 1 / more && certain) {
    c->verdict = BenchVerdict::kFaster;
  } else if (c->low >= 1 / same && c->high <= same) {
    c->verdict = BenchVerdict::kSame;
  } else if (away > same && away <= more) {
    c->in_noise = true;
  } else {
    c->rounds_needed = RoundsNeeded(*c);
  }
}

}  // namespace

bool SameRegime(const MachineState& a, const MachineState& b, const RegimeTolerance& tolerance) {
  return Near(a.read_bandwidth_one, b.read_bandwidth_one, tolerance.read_bandwidth_one) &&
         Near(a.read_bandwidth_all, b.read_bandwidth_all, tolerance.read_bandwidth_all) &&
         Near(a.barrier_seconds, b.barrier_seconds, tolerance.barrier_seconds) &&
         Close(a.others, b.others, tolerance.others) && Close(a.steal, b.steal, tolerance.steal);
}

std::string_view BenchVerdictName(BenchVerdict verdict) {
  switch (verdict) {
    case BenchVerdict::kFaster:
      return "faster";
    case BenchVerdict::kSlower:
      return "slower";
    case BenchVerdict::kSame:
      return "same";
    case BenchVerdict::kInconclusive:
      break;
  }
  return "inconclusive";
}

bool BenchComparison::counters_worse() const {
  return std::ranges::any_of(counters, &CounterChange::worse);
}

bool BenchComparison::regressed() const {
  return verdict == BenchVerdict::kSlower || bits_changed || counters_worse();
}

Comparison::Outcome Comparison::outcome() const {
  if (std::ranges::any_of(benchmarks, &BenchComparison::regressed)) return Outcome::kRegression;
  if (identical) return Outcome::kHolds;
  const bool open = std::ranges::any_of(benchmarks, [](const BenchComparison& c) {
    return c.verdict == BenchVerdict::kInconclusive;
  });
  return open ? Outcome::kInconclusive : Outcome::kHolds;
}

Comparison Compare(BenchRun baseline, BenchRun subject, const ComparisonOptions& options) {
  const std::string before = baseline.machine.Fingerprint();
  const std::string now = subject.machine.Fingerprint();
  if (before != now && !options.across_machines) {
    throw Error({"comparison",
                 fmt::format("the baseline was measured on machine {} ({}), the subject on {} ({})",
                             before, baseline.machine.processor, now, subject.machine.processor),
                 "measure both on one machine, or allow it with --across-machines"});
  }
  Comparison result;
  result.options = options;
  internal::SplitSides(baseline, subject, options, &result);
  result.identical = !baseline.build.empty() && baseline.build == subject.build;
  std::vector<double> p_values;
  result.interleaved = true;
  for (const BenchResult& before_it : baseline.benchmarks) {
    const BenchResult* now_it = subject.Find(before_it.name);
    if (now_it == nullptr) continue;
    result.interleaved = result.interleaved && InRounds(before_it) && InRounds(*now_it);
    const Random random = Random(options.seed).Split(result.benchmarks.size());
    result.benchmarks.push_back(CompareOne(before_it, *now_it, options, random));
    p_values.push_back(result.benchmarks.back().p_value);
  }
  const std::vector<double> adjusted = HolmAdjusted(p_values);
  for (size_t i = 0; i < adjusted.size(); ++i) {
    result.benchmarks[i].p_value = adjusted[i];
    Judge(LevelOf(options), &result.benchmarks[i]);
  }
  result.baseline = std::move(baseline);
  result.subject = std::move(subject);
  return result;
}

std::map<std::string, double> NoiseFloors(const Comparison& aa) {
  LS_CHECK(aa.identical, "noise floors from builds that differ");
  std::map<std::string, double> floors;
  for (const BenchComparison& c : aa.benchmarks) {
    if (c.rounds >= kRoundsMin) floors[c.name] = std::max(c.high, 1 / c.low) - 1;
  }
  return floors;
}

}  // namespace lockstep
