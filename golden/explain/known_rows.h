// Rows that lie around a row of a cache and may have got into its place.
#ifndef LOCKSTEP_GOLDEN_EXPLAIN_KNOWN_ROWS_H_
#define LOCKSTEP_GOLDEN_EXPLAIN_KNOWN_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "golden/cause.h"
#include "golden/explain/runs.h"

namespace lockstep {

// Rows of one side of a layer's cache.
struct HeldPlace {
  bool values = false;  // V; else K
  int32_t layer = 0;
  int32_t sequence = 0;
  int32_t last_op = 0;                      // rows of later operations cannot be here
  int32_t step = -1;                        // that wrote them, -1: several did
  std::span<const int32_t> positions = {};  // [n]
  std::span<const float> should = {};       // [n, kv_stride], as they should be
};

// Of everything that was written up to then. `spec`: of the cache.
std::vector<KnownRow> RowsAround(const ValuedRun& run, const CacheSpec& spec,
                                 const HeldPlace& place);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_EXPLAIN_KNOWN_ROWS_H_
