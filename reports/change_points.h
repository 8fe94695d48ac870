// Where the level of a series changes for good.
#ifndef LOCKSTEP_REPORTS_CHANGE_POINTS_H_
#define LOCKSTEP_REPORTS_CHANGE_POINTS_H_

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

struct ChangePointOptions {
  // What one more change has to save, in variances of the noise times log(n): the larger, the fewer
  // changes. 2 would be Schwarz's criterion; measured times have heavier tails.
  double penalty = 4;
  size_t shortest = 3;  // values between two changes, at least
};

// The first index of each new level, in increasing order: the cuts that minimise the squared
// distances to the means of the pieces plus the penalty of each cut. Exact, by PELT (Killick,
// Fearnhead, Eckley, "Optimal Detection of Changepoints With a Linear Computational Cost", JASA
// 2012). The noise's deviation is that of neighbours, by their median absolute difference, so that
// the changes themselves do not count. REQUIRES: no NaN; shortest > 0.
std::vector<size_t> ChangePoints(std::span<const double> values,
                                 const ChangePointOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_CHANGE_POINTS_H_
