#include "reports/rank_test.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "caches/check.h"

namespace lockstep {
namespace {

constexpr size_t kExactPairs = 2500;
constexpr size_t kExactBlock = 12;

// Twice the number of pairs with a larger subject, ties counted once: always whole.
int64_t TwiceU(std::span<const double> baseline, std::span<const double> subject) {
  int64_t twice = 0;
  for (double s : subject) {
    for (double b : baseline) twice += s > b ? 2 : s == b ? 1 : 0;
  }
  return twice;
}

std::vector<double> Pooled(std::span<const double> baseline, std::span<const double> subject) {
  std::vector<double> all(baseline.begin(), baseline.end());
  all.insert(all.end(), subject.begin(), subject.end());
  std::ranges::sort(all);
  return all;
}

// Of U, given the ties.
double Variance(std::span<const double> baseline, std::span<const double> subject) {
  const std::vector<double> all = Pooled(baseline, subject);
  const auto n = static_cast<double>(all.size());
  double ties = 0;
  for (size_t i = 0; i < all.size();) {
    size_t end = i;
    while (end < all.size() && all[end] == all[i]) ++end;
    const auto t = static_cast<double>(end - i);
    ties += t * t * t - t;
    i = end;
  }
  const auto pairs = static_cast<double>(baseline.size() * subject.size());
  return n < 2 ? 0 : pairs / 12 * (n + 1 - ties / (n * (n - 1)));
}

double NormalUpperTail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

double TwoSidedNormal(double statistic, double mean, double variance) {
  if (variance <= 0) return 1;
  const double z = (std::abs(statistic - mean) - 0.5) / std::sqrt(variance);
  return std::min(1.0, 2 * NormalUpperTail(z));
}

// weights[i] is how often the statistic is i, of all equally likely cases.
double TwoSidedExact(std::span<const double> weights, size_t observed) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto at = weights.begin() + static_cast<ptrdiff_t>(observed);
  const double below = std::accumulate(weights.begin(), at + 1, 0.0);
  const double above = std::accumulate(at, weights.end(), 0.0);
  return std::min(1.0, 2 * std::min(below, above) / total);
}

// How often U is u for n subjects and m baselines without ties, u = 0 ... n * m: the largest value
// is a subject's, which is above all m, or a baseline's.
std::vector<double> ExactWeights(size_t n, size_t m) {
  std::vector<std::vector<double>> row(m + 1, {1});  // no subjects: U is 0
  for (size_t i = 1; i <= n; ++i) {
    std::vector<std::vector<double>> next(m + 1);
    next[0] = {1};
    for (size_t j = 1; j <= m; ++j) {
      next[j].assign(i * j + 1, 0);
      for (size_t u = 0; u < row[j].size(); ++u) next[j][u + j] += row[j][u];
      for (size_t u = 0; u < next[j - 1].size(); ++u) next[j][u] += next[j - 1][u];
    }
    row = std::move(next);
  }
  return row[m];
}

// How often twice U is v in a block, over all ways to call so many of its values the subject's.
std::vector<double> BlockWeights(const SampleBlock& block) {
  const std::vector<double> all = Pooled(block.baseline, block.subject);
  std::vector<double> weights(2 * block.baseline.size() * block.subject.size() + 1);
  for (uint32_t chosen = 0; chosen < (1u << all.size()); ++chosen) {
    if (std::popcount(chosen) != static_cast<int>(block.subject.size())) continue;
    std::vector<double> baseline, subject;
    for (size_t i = 0; i < all.size(); ++i) {
      ((chosen >> i & 1) != 0 ? subject : baseline).push_back(all[i]);
    }
    weights[static_cast<size_t>(TwiceU(baseline, subject))] += 1;
  }
  return weights;
}

std::vector<double> Convolved(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> sum(a.size() + b.size() - 1);
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j) sum[i + j] += a[i] * b[j];
  }
  // Only proportions count, and counts of many blocks would overflow.
  const double total = std::accumulate(sum.begin(), sum.end(), 0.0);
  for (double& weight : sum) weight /= total;
  return sum;
}

}  // namespace

RankTest MannWhitney(std::span<const double> baseline, std::span<const double> subject) {
  LS_CHECK(!baseline.empty() && !subject.empty(), "{} baselines, {} subjects", baseline.size(),
           subject.size());
  const int64_t twice = TwiceU(baseline, subject);
  const std::vector<double> all = Pooled(baseline, subject);
  const bool ties = std::ranges::adjacent_find(all) != all.end();
  RankTest test = {.statistic = static_cast<double>(twice) / 2};
  const size_t pairs = baseline.size() * subject.size();
  if (!ties && pairs <= kExactPairs) {
    test.p_value = TwoSidedExact(ExactWeights(subject.size(), baseline.size()),
                                 static_cast<size_t>(twice / 2));
    return test;
  }
  test.exact = false;
  test.p_value =
      TwoSidedNormal(test.statistic, static_cast<double>(pairs) / 2, Variance(baseline, subject));
  return test;
}

RankTest BlockedMannWhitney(std::span<const SampleBlock> blocks) {
  RankTest test;
  int64_t twice = 0;
  double mean = 0, variance = 0;
  for (const SampleBlock& block : blocks) {
    LS_CHECK(!block.baseline.empty() && !block.subject.empty(), "{} baselines, {} subjects",
             block.baseline.size(), block.subject.size());
    twice += TwiceU(block.baseline, block.subject);
    mean += static_cast<double>(block.baseline.size() * block.subject.size()) / 2;
    variance += Variance(block.baseline, block.subject);
    if (block.baseline.size() + block.subject.size() > kExactBlock) test.exact = false;
  }
  test.statistic = static_cast<double>(twice) / 2;
  if (!test.exact) {
    test.p_value = TwoSidedNormal(test.statistic, mean, variance);
    return test;
  }
  std::vector<double> weights = {1};
  for (const SampleBlock& block : blocks) weights = Convolved(weights, BlockWeights(block));
  test.p_value = TwoSidedExact(weights, static_cast<size_t>(twice));
  return test;
}

std::vector<double> HolmAdjusted(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return p_values[i]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto left = static_cast<double>(order.size() - i);
    largest = std::max(largest, std::min(1.0, left * p_values[order[i]]));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

double NormalQuantile(double p) {
  LS_CHECK(p > 0 && p < 1, "the normal quantile of {}", p);
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {  // halves 80 down to a double's last bit
    const double middle = (low + high) / 2;
    (NormalUpperTail(-middle) < p ? low : high) = middle;
  }
  return high;
}

}  // namespace lockstep
