#include "reports/peer/distribution.h"

#include <algorithm>
#include <cmath>

#include "caches/check.h"

namespace lockstep::internal {
namespace {

// ln of the smallest probability that binary32 holds.
const double kLogSmallest = std::log(0x1p-149);

}  // namespace

std::vector<double> LogProbabilities(std::span<const float> values, bool are_probabilities) {
  std::vector<double> logs(values.size());
  if (are_probabilities) {
    std::ranges::transform(values, logs.begin(), [](float p) { return std::log(double{p}); });
    return logs;
  }
  double largest = -INFINITY;
  for (const float value : values) largest = std::max(largest, double{value});
  double sum = 0;
  for (const float value : values) sum += std::exp(value - largest);
  const double log_sum = largest + std::log(sum);
  std::ranges::transform(values, logs.begin(), [&](float value) { return value - log_sum; });
  return logs;
}

int32_t ArgmaxOf(std::span<const double> values) {
  LS_CHECK(!values.empty(), "a vocabulary of no tokens");
  return static_cast<int32_t>(std::ranges::max_element(values) - values.begin());
}

double KlDivergence(std::span<const double> log_p, std::span<const double> log_q) {
  LS_CHECK(log_p.size() == log_q.size(), "{} and {} tokens", log_p.size(), log_q.size());
  double sum = 0;
  for (size_t i = 0; i < log_p.size(); ++i) {
    if (log_p[i] == -INFINITY) continue;
    sum += std::exp(log_p[i]) * (log_p[i] - std::max(log_q[i], kLogSmallest));
  }
  return std::max(sum, 0.0);
}

LogDistance DistanceOf(std::span<const double> log_p, std::span<const double> log_q) {
  LS_CHECK(log_p.size() == log_q.size(), "{} and {} tokens", log_p.size(), log_q.size());
  LogDistance distance;
  for (size_t i = 0; i < log_p.size(); ++i) {
    if (std::max(log_p[i], log_q[i]) < kLeastLikely) {
      ++distance.left_out;
      continue;
    }
    const double apart =
        std::abs(std::max(log_p[i], kLogSmallest) - std::max(log_q[i], kLogSmallest));
    distance.max = std::isnan(apart) ? INFINITY : std::max(distance.max, apart);
    distance.sum += apart;
    ++distance.tokens;
  }
  return distance;
}

}  // namespace lockstep::internal
