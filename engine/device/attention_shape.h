// What the kernels of attention share (engine/ARITHMETIC.md 4.5). For nvcc too.
//
// Four launches: scores of tiles of positions, the softmax of each row of scores, the values of
// each segment of 256 positions, the sum of the segments. A *row* is a query and a head; those of
// one KV head, of one or several queries, share the reading of its keys and values.
#ifndef LOCKSTEP_ENGINE_DEVICE_ATTENTION_SHAPE_H_
#define LOCKSTEP_ENGINE_DEVICE_ATTENTION_SHAPE_H_

#include <cstdint>

#include "engine/device/reduce.h"
#include "engine/device/stored_rows.h"

namespace lockstep::device {

constexpr int32_t kAttentionSegment = 256;
// Rows that a block works on at once.
constexpr int32_t kRowsAtOnce = 8;

struct AttentionPlan {
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t queries;
  int32_t tile_queries;  // that a block takes; 1 with a window, where each sees other rows
  int32_t score_stride;  // floats of a row of scores
  int32_t segments;      // of positions, at most
  int32_t window;        // rows that a query sees at most, the last ones; 0: all
  Global<const int32_t> positions;  // [queries]

  LOCKSTEP_KERNEL int32_t group() const { return heads / kv_heads; }
  // The first row that the query at `position` sees.
  LOCKSTEP_KERNEL int32_t FirstOf(int32_t position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
};

// The rows of one block: queries [first, first + count) and the heads of one KV head.
struct RowTile {
  int32_t first;
  int32_t count;
  int32_t rows;
  int32_t least;  // the first position that the first query sees
  int32_t most;   // behind the last that the last one sees
};

template <typename Positions>
LOCKSTEP_KERNEL RowTile TileOf(const AttentionPlan& plan, const Positions& positions,
                               int32_t tile) {
  const int32_t first = tile * plan.tile_queries;
  const int32_t left = plan.queries - first;
  const int32_t count = left < plan.tile_queries ? left : plan.tile_queries;
  return {first, count, count * plan.group(), plan.FirstOf(positions[first]),
          positions[first + count - 1] + 1};
}

// Row r of a tile: its query, and its place among all rows, [queries, heads].
struct RowPlace {
  int32_t query;
  int64_t index;
};

LOCKSTEP_KERNEL RowPlace PlaceOf(const AttentionPlan& plan, const RowTile& tile, int32_t kv_head,
                                 int32_t r) {
  const int32_t query = tile.first + r / plan.group();
  return {query, int64_t{query} * plan.heads + kv_head * plan.group() + r % plan.group()};
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_ATTENTION_SHAPE_H_
