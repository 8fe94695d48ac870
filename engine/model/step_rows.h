// The rows that a step wrote, as a cache's view shows them afterwards: what traces call
// Stage::kCacheKey and kCacheValue.
#ifndef LOCKSTEP_ENGINE_MODEL_STEP_ROWS_H_
#define LOCKSTEP_ENGINE_MODEL_STEP_ROWS_H_

#include <cstdint>
#include <span>

#include "caches/kv_cache.h"

namespace lockstep {

// The view's rows at `positions` (increasing), decoded. Throws BrokenCache of that layer when the
// view does not reach so far.
KvRows RowsOfStep(const KvView& view, std::span<const int32_t> positions, int64_t kv_stride,
                  int32_t layer);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_STEP_ROWS_H_
