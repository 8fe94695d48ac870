#include "caches/quantized/show_rows.h"

#include <algorithm>

namespace lockstep {
namespace {

// Appends the segment, or lengthens the last one when its rows follow that one's in memory.
void Append(const KvSegment& next, int64_t kv_stride, KvView* view) {
  if (next.count == 0) return;
  if (!view->segments.empty()) {
    KvSegment& last = view->segments.back();
    if (last.key_type == next.key_type && last.value_type == next.value_type &&
        last.keys + last.count * RowBytes(last.key_type, kv_stride) == next.keys &&
        last.values + last.count * RowBytes(last.value_type, kv_stride) == next.values) {
      last.count += next.count;
      return;
    }
  }
  view->segments.push_back(next);
}

KvSegment Encoded(const ShownRows& rows, int32_t first, int32_t count) {
  return {.first = first,
          .count = count,
          .key_type = rows.key_type,
          .value_type = rows.value_type,
          .keys = rows.keys + first * RowBytes(rows.key_type, rows.kv_stride),
          .values = rows.values + first * RowBytes(rows.value_type, rows.kv_stride)};
}

KvSegment Exact(const ShownRows& rows, int32_t position, int64_t row) {
  const int64_t bytes = RowBytes(rows.window_type, rows.kv_stride);
  return {.first = position,
          .count = 1,
          .key_type = rows.window_type,
          .value_type = rows.window_type,
          .keys = rows.exact_keys + row * bytes,
          .values = rows.exact_values + row * bytes};
}

}  // namespace

void ShowRows(const ShownRows& rows, int32_t position, int32_t step_row, KvView* view) {
  view->length = rows.length;
  view->segments.clear();
  // Rows before this one are outside the query's window.
  const int64_t first = std::max<int64_t>(int64_t{position} - rows.window + 1, 0);
  const int32_t window_begin =
      rows.window == 0 ? rows.length : static_cast<int32_t>(std::min<int64_t>(first, rows.length));
  Append(Encoded(rows, 0, window_begin), rows.kv_stride, view);
  for (int32_t p = window_begin; p < rows.length; ++p) {
    const int64_t row = rows.index->Find(p, step_row);
    Append(row < 0 ? Encoded(rows, p, 1) : Exact(rows, p, row), rows.kv_stride, view);
  }
}

}  // namespace lockstep
