#include "reports/change_points.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "caches/check.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

// Squared distances of values [begin, end) to their mean, from running sums.
class SquaredCost {
 public:
  explicit SquaredCost(std::span<const double> values) : sums_(1), squares_(1) {
    for (double value : values) {
      sums_.push_back(sums_.back() + value);
      squares_.push_back(squares_.back() + value * value);
    }
  }

  double operator()(size_t begin, size_t end) const {
    const double sum = sums_[end] - sums_[begin];
    const double square = squares_[end] - squares_[begin];
    return std::max(0.0, square - sum * sum / static_cast<double>(end - begin));
  }

 private:
  std::vector<double> sums_, squares_;
};

// Of normal noise: the median absolute difference of neighbours is 0.6745 * sqrt(2) deviations.
double NoiseVariance(std::span<const double> values) {
  std::vector<double> differences;
  for (size_t i = 1; i < values.size(); ++i) {
    differences.push_back(std::abs(values[i] - values[i - 1]));
  }
  const double deviation = Quantile(differences, 0.5) / (0.6745 * std::sqrt(2.0));
  return deviation * deviation;
}

}  // namespace

std::vector<size_t> ChangePoints(std::span<const double> all, const ChangePointOptions& options) {
  LS_CHECK(options.shortest > 0, "pieces of {} values", options.shortest);
  const size_t n = all.size();
  if (n < 2 * options.shortest) return {};
  // Around their first value: sums of squares of large numbers would lose what differs.
  std::vector<double> values(all.begin(), all.end());
  for (double& value : values) value -= all.front();
  const SquaredCost cost(values);
  const double noise = std::max(NoiseVariance(values), 1e-30);
  const double penalty = options.penalty * noise * std::log(static_cast<double>(n));
  // best[t]: of the first t values; before[t]: where its last piece begins.
  std::vector<double> best(n + 1, std::numeric_limits<double>::infinity());
  std::vector<size_t> before(n + 1, 0);
  best[0] = -penalty;
  std::vector<size_t> candidates = {0};
  for (size_t t = options.shortest; t <= n; ++t) {
    for (size_t begin : candidates) {
      if (t - begin < options.shortest) continue;
      const double with = best[begin] + cost(begin, t) + penalty;
      if (with >= best[t]) continue;
      best[t] = with;
      before[t] = begin;
    }
    // What is worse by now than a cut here can never begin the last piece.
    std::erase_if(candidates, [&](size_t begin) {
      return t - begin >= options.shortest && best[begin] + cost(begin, t) > best[t];
    });
    candidates.push_back(t);
  }
  std::vector<size_t> changes;
  for (size_t t = before[n]; t > 0; t = before[t]) changes.push_back(t);
  std::ranges::reverse(changes);
  return changes;
}

}  // namespace lockstep
