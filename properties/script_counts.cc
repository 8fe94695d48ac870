#include "properties/script_runner.h"

namespace lockstep {

ScriptCounts& ScriptCounts::operator+=(const ScriptCounts& other) {
  operations += other.operations;
  granted += other.granted;
  refused += other.refused;
  committed += other.committed;
  updated += other.updated;
  threw += other.threw;
  exhausted += other.exhausted;
  rolled_back += other.rolled_back;
  forked += other.forked;
  restored += other.restored;
  rows_compared += other.rows_compared;
  allocations_failed += other.allocations_failed;
  for (size_t i = 0; i < kPositionClasses; ++i) positions[i] += other.positions[i];
  for (size_t i = 0; i < kOperationClasses; ++i) sequences[i] += other.sequences[i];
  return *this;
}

}  // namespace lockstep
