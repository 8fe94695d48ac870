// The ratio of costs of one benchmark, from its samples of both sides.
#ifndef LOCKSTEP_REPORTS_COMPARE_COST_RATIO_H_
#define LOCKSTEP_REPORTS_COMPARE_COST_RATIO_H_

#include <cstdint>
#include <vector>

#include "caches/random.h"
#include "reports/comparison.h"
#include "reports/rank_test.h"

namespace lockstep::internal {

// What is left of the samples once those that cannot be compared are out. In each block, costs.
struct ComparableSamples {
  std::vector<SampleBlock> blocks;
  bool paired = false;  // a block is a round, else all samples of one regime
  bool by_limit = false;
  int32_t rounds_left = 0;
  std::vector<double> baseline, subject;  // their values in the unit
};
ComparableSamples SelectSamples(const BenchResult& baseline, const BenchResult& subject,
                                const RegimeTolerance& regimes);

struct CostRatio {
  double log_ratio = 0;  // natural logarithm of the cost of the subject over that of the baseline
  double low = 0, high = 0;
  double noise = 0;  // the spread that the two samples of one side in a round show; 0: unknown
};
// Paired: the median over rounds of the ratio of geometric means, and its percentile bootstrap over
// rounds (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13). Not paired:
// the ratio of medians of each regime, averaged with the smaller number of samples as weight; each
// side is drawn anew by itself. `confidence` is of the interval. REQUIRES: blocks.
CostRatio EstimateCostRatio(const ComparableSamples& samples, double confidence, int32_t resamples,
                            Random random);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_COMPARE_COST_RATIO_H_
