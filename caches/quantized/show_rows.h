// How rows with an exact window beside them are shown, wherever a cache keeps both.
#ifndef LOCKSTEP_CACHES_QUANTIZED_SHOW_ROWS_H_
#define LOCKSTEP_CACHES_QUANTIZED_SHOW_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "caches/kv_cache.h"
#include "caches/quantized/window_index.h"

namespace lockstep {

// The rows of one layer. Not owned.
struct ShownRows {
  int32_t length = 0;
  int64_t kv_stride = 0;
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  const std::byte* keys = nullptr;    // [length, kv_stride], encoded
  const std::byte* values = nullptr;  // likewise
  int32_t window = 0;                 // positions; 0: none, and nothing below counts
  const WindowIndex* index = nullptr;
  RowType window_type = RowType::kF32;
  const std::byte* exact_keys = nullptr;    // by row of the index, stored as window_type
  const std::byte* exact_values = nullptr;  // likewise
};

// The view of the query at `position` when the ring is as it stood at `step_row`.
void ShowRows(const ShownRows& rows, int32_t position, int32_t step_row, KvView* view);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_QUANTIZED_SHOW_ROWS_H_
