// What one side of a comparison has alone, and whether it may.
#ifndef LOCKSTEP_REPORTS_COMPARE_ONE_SIDED_H_
#define LOCKSTEP_REPORTS_COMPARE_ONE_SIDED_H_

#include "reports/comparison.h"

namespace lockstep::internal {

// Fills `added` and `gone`. Throws Error as CheckSides does.
void SplitSides(const BenchRun& baseline, const BenchRun& subject, const ComparisonOptions& options,
                Comparison* out);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_COMPARE_ONE_SIDED_H_
