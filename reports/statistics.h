// Statistics for measured times: what reports state instead of single figures.
#ifndef LOCKSTEP_REPORTS_STATISTICS_H_
#define LOCKSTEP_REPORTS_STATISTICS_H_

#include <cstdint>
#include <span>

#include "caches/random.h"

namespace lockstep {

// The q-quantile, linear between order statistics: with n values it is the one of rank q * (n - 1),
// counted from 0 (Hyndman & Fan, "Sample Quantiles in Statistical Packages", 1996, definition 7).
// REQUIRES: not empty, no NaN, 0 <= q <= 1.
double Quantile(std::span<const double> values, double q);

struct Summary {
  int32_t count = 0;
  double low = 0;  // first quartile
  double median = 0;
  double high = 0;  // third quartile
};
// REQUIRES: not empty, no NaN.
Summary Summarize(std::span<const double> values);

struct RatioEstimate {
  double median = 0;  // of the ratios of pairs
  double low = 0;     // a 95 % confidence interval of that median
  double high = 0;
};
// subject[i] and baseline[i] were measured next to each other. The interval is the percentile
// bootstrap (Efron & Tibshirani, "An Introduction to the Bootstrap", chapter 13): pairs are drawn
// with replacement `resamples` times, the same ones for the same generator.
// REQUIRES: as many subjects as baselines, at least one; baselines not 0; resamples > 0.
RatioEstimate EstimateRatio(std::span<const double> subject, std::span<const double> baseline,
                            Random random, int32_t resamples = 2000);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_STATISTICS_H_
