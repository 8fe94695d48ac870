// Tests that look at ranks alone, so that no outlier and no shape of the noise matters, and what
// goes with many tests at once.
#ifndef LOCKSTEP_REPORTS_RANK_TEST_H_
#define LOCKSTEP_REPORTS_RANK_TEST_H_

#include <span>
#include <vector>

namespace lockstep {

struct RankTest {
  // Pairs of a subject's and a baseline's value of which the subject's is larger; ties are halves.
  double statistic = 0;
  double p_value = 1;  // two-sided: of the event that is at least as far on its side, doubled
  bool exact = true;   // false: normal approximation
};

// Mann & Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than
// the Other", 1947: their recurrence where there are no ties and at most 2500 pairs, else the
// normal approximation with continuity correction and the variance of midranks (Lehmann,
// "Nonparametrics", 1975, section 1.4). REQUIRES: neither empty, no NaN.
RankTest MannWhitney(std::span<const double> baseline, std::span<const double> subject);

// Values that were taken next to each other, under the same conditions.
struct SampleBlock {
  std::vector<double> baseline;
  std::vector<double> subject;
};

// The same within each block, added up over blocks (van Elteren, "On the combination of
// independent two-sample tests of Wilcoxon", 1960, with equal weights): what changes between blocks
// cancels. It holds exactly when within a block any order of the two sides was as likely as any
// other; ties are part of the distribution. Blocks of more than 12 values take the normal
// approximation. REQUIRES: no side of any block empty, no NaN.
RankTest BlockedMannWhitney(std::span<const SampleBlock> blocks);

// p-values adjusted so that comparing each with alpha gives one false alarm or more with
// probability alpha at most, however they depend on each other: Holm, "A Simple Sequentially
// Rejective Multiple Test Procedure", 1979. In the order of the argument.
std::vector<double> HolmAdjusted(std::span<const double> p_values);

// z with P(Z <= z) = p for a standard normal Z. REQUIRES: 0 < p < 1.
double NormalQuantile(double p);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_RANK_TEST_H_
