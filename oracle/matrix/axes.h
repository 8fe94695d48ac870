// What each axis of the matrix consists of: its values, as data.
#ifndef LOCKSTEP_ORACLE_MATRIX_AXES_H_
#define LOCKSTEP_ORACLE_MATRIX_AXES_H_

#include <string>
#include <vector>

#include "oracle/matrix.h"
#include "oracle/matrix/run.h"

namespace lockstep {

// Which slots a run's cache has to have granted, so that a path is not compared with itself.
enum class SlotCheck : uint8_t { kAny, kSomeGranted, kNoneGranted, kBoth };

// One value of an axis, and the runs that make it up: models x kernels x caches.
struct CellPlan {
  std::string value;
  Variation variation = {};
  std::vector<const KernelTable*> kernels = {};
  std::vector<CacheSpec> caches = {};
  SlotCheck slots = SlotCheck::kAny;
  std::string reason = {};  // why nothing may be left to run, for a cell without a cache
};

// The values that this process computes; none for an axis whose digests come from outside.
std::vector<CellPlan> PlanAxis(MatrixAxis axis, const MatrixOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_MATRIX_AXES_H_
