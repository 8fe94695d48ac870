#include "reports/statistics.h"

#include <algorithm>
#include <vector>

#include "caches/check.h"

namespace lockstep {
namespace {

double QuantileOfSorted(std::span<const double> sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

std::vector<double> Sorted(std::span<const double> values) {
  LS_CHECK(!values.empty(), "a statistic of no values");
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace

double Quantile(std::span<const double> values, double q) {
  LS_CHECK(q >= 0 && q <= 1, "the {}-quantile", q);
  return QuantileOfSorted(Sorted(values), q);
}

Summary Summarize(std::span<const double> values) {
  const std::vector<double> sorted = Sorted(values);
  return {.count = static_cast<int32_t>(sorted.size()),
          .low = QuantileOfSorted(sorted, 0.25),
          .median = QuantileOfSorted(sorted, 0.5),
          .high = QuantileOfSorted(sorted, 0.75)};
}

RatioEstimate EstimateRatio(std::span<const double> subject, std::span<const double> baseline,
                            Random random, int32_t resamples) {
  LS_CHECK(subject.size() == baseline.size(), "{} subjects, {} baselines", subject.size(),
           baseline.size());
  LS_CHECK(resamples > 0, "{} resamples", resamples);
  std::vector<double> ratios;
  for (size_t i = 0; i < subject.size(); ++i) {
    LS_CHECK(baseline[i] != 0, "baseline {} is 0", i);
    ratios.push_back(subject[i] / baseline[i]);
  }
  std::vector<double> medians, drawn(ratios.size());
  for (int32_t i = 0; i < resamples; ++i) {
    for (double& ratio : drawn) ratio = ratios[random.Below(static_cast<uint32_t>(ratios.size()))];
    medians.push_back(Quantile(drawn, 0.5));
  }
  return {.median = Quantile(ratios, 0.5),
          .low = Quantile(medians, 0.025),
          .high = Quantile(medians, 0.975)};
}

}  // namespace lockstep
