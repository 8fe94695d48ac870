#include "engine/model/step_rows.h"

#include <fmt/format.h>

#include "engine/transformer.h"

namespace lockstep {

KvRows RowsOfStep(const KvView& view, std::span<const int32_t> positions, int64_t kv_stride,
                  int32_t layer) {
  KvView step;
  auto segment = view.segments.begin();
  for (const int32_t position : positions) {
    while (segment != view.segments.end() && position >= segment->first + segment->count) {
      ++segment;
    }
    if (segment == view.segments.end() || position < segment->first) {
      throw BrokenCache(layer, fmt::format("it shows rows {} to {} after the write of position {}",
                                           view.first(), view.length, position));
    }
    KvSegment row = *segment;
    row.keys += (position - segment->first) * RowBytes(row.key_type, kv_stride);
    row.values += (position - segment->first) * RowBytes(row.value_type, kv_stride);
    row.first = step.length++;
    row.count = 1;
    step.segments.push_back(row);
  }
  return DecodeRows(step, kv_stride);
}

}  // namespace lockstep
