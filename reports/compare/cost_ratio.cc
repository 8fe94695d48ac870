#include "reports/compare/cost_ratio.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "caches/check.h"
#include "reports/statistics.h"

namespace lockstep::internal {
namespace {

// Samples of an unpaired regime below which it says nothing.
constexpr size_t kRegimeSamplesMin = 3;

// Cost grows as the machine has to do more: a rate is turned over.
double CostOf(const BenchSample& sample, Direction direction, bool by_limit) {
  const double value = by_limit ? sample.value / sample.limit.value() : sample.value;
  return direction == Direction::kLowerIsBetter ? value : 1 / value;
}

bool HasLimits(const BenchResult& result) {
  return std::ranges::all_of(result.samples, [](const auto& s) { return s.limit.has_value(); });
}

bool OneRegime(const std::vector<const BenchSample*>& samples, const RegimeTolerance& tolerance) {
  for (const BenchSample* a : samples) {
    for (const BenchSample* b : samples) {
      if (!SameRegime(a->state, b->state, tolerance)) return false;
    }
  }
  return true;
}

struct BothSides {
  std::vector<const BenchSample*> baseline, subject;

  std::vector<const BenchSample*> all() const {
    std::vector<const BenchSample*> both = baseline;
    both.insert(both.end(), subject.begin(), subject.end());
    return both;
  }
};

// Every sample joins the first group whose first one it shares a regime with.
std::vector<BothSides> GroupsOf(const BenchResult& baseline, const BenchResult& subject,
                                const RegimeTolerance& tolerance) {
  std::vector<BothSides> groups;
  const auto add = [&](const BenchSample& sample,
                       std::vector<const BenchSample*> BothSides::*side) {
    for (BothSides& group : groups) {
      if (!SameRegime(group.all().front()->state, sample.state, tolerance)) continue;
      (group.*side).push_back(&sample);
      return;
    }
    (groups.emplace_back().*side).push_back(&sample);
  };
  for (const BenchSample& sample : baseline.samples) add(sample, &BothSides::baseline);
  for (const BenchSample& sample : subject.samples) add(sample, &BothSides::subject);
  return groups;
}

double MedianOf(std::vector<double>* values) {
  const auto middle = values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
  std::ranges::nth_element(*values, middle);
  if (values->size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values->begin(), middle)) / 2;
}

// By so much what stands beside a sample differs on this machine without a change of regime: 1.89
// times what nine of ten pairs stay within. Of normal values that is the range of a round's four in
// 99 of 100 cases (4.4 standard deviations, the studentized range, over the 2.33 of a pair); the
// tails of a barrier's latency are longer, and the median of its pairs says little of them. Pairs
// are the two samples of one side, so that states which differ between the sides stay apart however
// often they do.
RegimeTolerance UsualTolerance(const std::vector<BothSides>& rounds, RegimeTolerance tolerance) {
  constexpr double kShare = 0.9, kRange = 4.4 / 2.33;
  using Value = std::optional<double> MachineState::*;
  const auto range_of = [&](Value value, auto distance) {
    std::vector<double> apart;
    for (const BothSides& round : rounds) {
      for (const auto* side : {&round.baseline, &round.subject}) {
        if (side->size() != 2) continue;
        const auto &a = (*side)[0]->state.*value, &b = (*side)[1]->state.*value;
        if (a && b) apart.push_back(distance(*a, *b));
      }
    }
    return apart.empty() ? 0 : kRange * Quantile(apart, kShare);
  };
  using Factor = std::pair<Value, double RegimeTolerance::*>;
  for (const auto& [value, factor] :
       {Factor{&MachineState::read_bandwidth_one, &RegimeTolerance::read_bandwidth_one},
        Factor{&MachineState::read_bandwidth_all, &RegimeTolerance::read_bandwidth_all},
        Factor{&MachineState::barrier_seconds, &RegimeTolerance::barrier_seconds}}) {
    const double usual =
        range_of(value, [](double a, double b) { return std::abs(std::log(a / b)); });
    tolerance.*factor = std::max(tolerance.*factor, std::exp(usual));
  }
  for (const auto& [value, difference] : {Factor{&MachineState::others, &RegimeTolerance::others},
                                          Factor{&MachineState::steal, &RegimeTolerance::steal}}) {
    const double usual = range_of(value, [](double a, double b) { return std::abs(a - b); });
    tolerance.*difference = std::max(tolerance.*difference, usual);
  }
  return tolerance;
}

double MeanOfLogs(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += std::log(value);
  return sum / static_cast<double>(values.size());
}

CostRatio WithInterval(double log_ratio, double confidence, int32_t resamples,
                       const std::function<double()>& draw) {
  std::vector<double> drawn(static_cast<size_t>(resamples));
  for (double& value : drawn) value = draw();
  return {.log_ratio = log_ratio,
          .low = Quantile(drawn, (1 - confidence) / 2),
          .high = Quantile(drawn, (1 + confidence) / 2)};
}

// Of one round's ratio, from how far the two samples of a side lie apart: 1.4826 times the median
// absolute deviation estimates a standard deviation (Hampel, "The Influence Curve and its Role in
// Robust Estimation", 1974); a ratio of means of two has half the variance of the difference.
double NoiseOf(const std::vector<SampleBlock>& blocks) {
  std::vector<double> apart;
  for (const SampleBlock& block : blocks) {
    for (const std::vector<double>* side : {&block.baseline, &block.subject}) {
      if (side->size() != 2) continue;
      apart.push_back(std::abs(std::log((*side)[0] / (*side)[1])) / std::sqrt(2.0));
    }
  }
  return apart.empty() ? 0 : 1.4826 * MedianOf(&apart);
}

CostRatio EstimatePaired(const std::vector<SampleBlock>& blocks, double confidence,
                         int32_t resamples, Random random) {
  std::vector<double> ratios;
  for (const SampleBlock& block : blocks) {
    ratios.push_back(MeanOfLogs(block.subject) - MeanOfLogs(block.baseline));
  }
  std::vector<double> drawn = ratios;
  const double median = MedianOf(&drawn);
  const auto count = static_cast<uint32_t>(ratios.size());
  CostRatio ratio = WithInterval(median, confidence, resamples, [&] {
    for (double& value : drawn) value = ratios[random.Below(count)];
    return MedianOf(&drawn);
  });
  ratio.noise = NoiseOf(blocks);
  return ratio;
}

CostRatio EstimateUnpaired(const std::vector<SampleBlock>& blocks, double confidence,
                           int32_t resamples, Random random) {
  const auto ratio_of = [&](const auto& side_of) {
    double sum = 0, weights = 0;
    for (const SampleBlock& block : blocks) {
      std::vector<double> baseline = side_of(block.baseline), subject = side_of(block.subject);
      const auto weight = static_cast<double>(std::min(baseline.size(), subject.size()));
      sum += weight * std::log(MedianOf(&subject) / MedianOf(&baseline));
      weights += weight;
    }
    return sum / weights;
  };
  const auto as_it_is = [](const std::vector<double>& side) { return side; };
  const auto anew = [&](const std::vector<double>& side) {
    std::vector<double> drawn(side.size());
    for (double& value : drawn) value = side[random.Below(static_cast<uint32_t>(side.size()))];
    return drawn;
  };
  return WithInterval(ratio_of(as_it_is), confidence, resamples, [&] { return ratio_of(anew); });
}

}  // namespace

ComparableSamples SelectSamples(const BenchResult& baseline, const BenchResult& subject,
                                const RegimeTolerance& regimes) {
  ComparableSamples selected;
  const auto in_round = [](const BenchSample& sample) { return sample.round >= 0; };
  selected.paired = !baseline.samples.empty() && !subject.samples.empty() &&
                    std::ranges::all_of(baseline.samples, in_round) &&
                    std::ranges::all_of(subject.samples, in_round);
  selected.by_limit = HasLimits(baseline) && HasLimits(subject);
  std::vector<BothSides> groups;
  if (selected.paired) {
    std::map<int32_t, BothSides> rounds;
    for (const BenchSample& s : baseline.samples) rounds[s.round].baseline.push_back(&s);
    for (const BenchSample& s : subject.samples) rounds[s.round].subject.push_back(&s);
    for (const auto& [round, both] : rounds) groups.push_back(both);
  } else {
    groups = GroupsOf(baseline, subject, regimes);
  }
  const RegimeTolerance usual = selected.paired ? UsualTolerance(groups, regimes) : regimes;
  for (const BothSides& group : groups) {
    const size_t least = selected.paired ? 1 : kRegimeSamplesMin;
    if (group.baseline.size() < least || group.subject.size() < least) continue;
    if (selected.paired && !OneRegime(group.all(), usual)) {
      ++selected.rounds_left;
      continue;
    }
    SampleBlock& block = selected.blocks.emplace_back();
    for (const BenchSample* s : group.baseline) {
      block.baseline.push_back(CostOf(*s, baseline.direction, selected.by_limit));
      selected.baseline.push_back(s->value);
    }
    for (const BenchSample* s : group.subject) {
      block.subject.push_back(CostOf(*s, subject.direction, selected.by_limit));
      selected.subject.push_back(s->value);
    }
  }
  return selected;
}

CostRatio EstimateCostRatio(const ComparableSamples& samples, double confidence, int32_t resamples,
                            Random random) {
  LS_CHECK(!samples.blocks.empty(), "a ratio of no samples");
  LS_CHECK(resamples > 0, "{} resamples", resamples);
  return samples.paired ? EstimatePaired(samples.blocks, confidence, resamples, random)
                        : EstimateUnpaired(samples.blocks, confidence, resamples, random);
}

}  // namespace lockstep::internal
