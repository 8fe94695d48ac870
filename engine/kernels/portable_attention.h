// Attention over segments of stored rows, read where they lie. Portable C++.
//
// A tile is up to 16 query heads that read the same KV head: the heads of a group, of several
// queries. Scores first, then the softmax, then the values.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/exp.h"
#include "engine/kernels/portable_scores.h"
#include "engine/kernels/portable_values.h"

namespace lockstep::internal {
namespace {

// The largest of scores[0, visible), -infinity when none is a number above it.
inline float MaxScore(const float* scores, int32_t visible) {
  const int32_t whole = visible / kLanes * kLanes;
  Lanes top = SplatLanes(-__builtin_inff());
  for (int32_t p = 0; p < whole; p += kLanes) {
    const Lanes x = LoadLanes(scores + p);
    for (int i = 0; i < kParts; ++i)
      top.part[i] = x.part[i] > top.part[i] ? x.part[i] : top.part[i];
  }
  float lanes[kLanes];
  StoreLanes(top, lanes);
  float best = -__builtin_inff();
  for (float lane : lanes) best = lane > best ? lane : best;
  for (int32_t p = whole; p < visible; ++p) best = scores[p] > best ? scores[p] : best;
  return best;
}

// scores[p] becomes exp(scores[p] - top); returns tree16 over p of them.
inline float SoftmaxWeights(float* scores, int32_t visible, float top) {
  const int32_t whole = visible / kLanes * kLanes;
  Lanes acc = SplatLanes(0.0f);
  for (int32_t p = 0; p < whole; p += kLanes) {
    const Lanes e = ExpLanes(LoadLanes(scores + p) - SplatLanes(top));
    StoreLanes(e, scores + p);
    acc = acc + e;
  }
  if (whole < visible) {  // the row is whole vectors long, what lies past `visible` is dropped
    float sums[kLanes], last[kLanes];
    StoreLanes(acc, sums);
    StoreLanes(ExpLanes(LoadLanes(scores + whole) - SplatLanes(top)), last);
    for (int32_t p = whole; p < visible; ++p) {
      scores[p] = last[p - whole];
      sums[p - whole] += last[p - whole];
    }
    acc = LoadLanes(sums);
  }
  return SumLanes(acc);
}

// The query row, or where it is no whole runs of 16 a copy that is padded with zeros.
inline const float* QueryRow(const float* q, int32_t dim, float* padded) {
  if (dim % kLanes == 0) return q;
  for (int32_t d = 0; d < ScoreStride(dim); ++d) padded[d] = d < dim ? q[d] : 0.0f;
  return padded;
}

// Query heads [head_begin, head_end), which read one KV head, of queries [first, first + count).
inline void AttentionTile(const AttentionShape& shape, const AttentionQueries& queries,
                          const KvHead& head, int32_t first, int32_t count, int32_t head_begin,
                          int32_t head_end, float* scratch) {
  RowTile tile;
  tile.count = 0;
  tile.fetches_ahead = count == 1;
  tile.most = queries.visible[first + count - 1];
  const int64_t stride = ScoreStride(tile.most);
  const int64_t row_stride = ScoreStride(head.dim);
  float* keys = scratch + kAttentionRows * stride;
  float* padded = keys + kKeyRows * row_stride;
  for (int32_t i = first; i < first + count; ++i) {
    for (int32_t h = head_begin; h < head_end; ++h) {
      const int64_t at = (int64_t{i} * shape.num_heads + h) * head.dim;
      tile.q[tile.count] = QueryRow(queries.q + at, head.dim, padded + tile.count * row_stride);
      tile.out[tile.count] = queries.out + at;
      tile.scores[tile.count] = scratch + tile.count * stride;
      tile.visible[tile.count] = queries.visible[i];
      ++tile.count;
    }
  }
  const float scale =
      shape.scale != 0 ? shape.scale : 1.0f / __builtin_sqrtf(static_cast<float>(head.dim));
  ScoreTile(head, tile, scale, keys);
  for (int32_t r = 0; r < tile.count; ++r) {
    const float top = MaxScore(tile.scores[r], tile.visible[r]);
    tile.sums[r] = SoftmaxWeights(tile.scores[r], tile.visible[r], top);
  }
  ValueTile(head, tile);
}

inline void Attention(const AttentionShape& shape, const AttentionQueries& queries,
                      const KvSegment* segments, int32_t head_begin, int32_t head_end,
                      float* scratch) {
  const int32_t group = shape.num_heads / shape.num_kv_heads;
  for (int32_t begin = head_begin; begin < head_end;) {
    const int32_t kv_head = begin / group;
    int32_t end = (kv_head + 1) * group < head_end ? (kv_head + 1) * group : head_end;
    if (end - begin > kAttentionRows) end = begin + kAttentionRows;
    const KvHead head = {.segments = segments,
                         .dim = shape.head_dim,
                         .element = int64_t{kv_head} * shape.head_dim,
                         .kv_stride = int64_t{shape.num_kv_heads} * shape.head_dim};
    const int32_t step = kAttentionRows / (end - begin);
    for (int32_t i = 0; i < queries.count; i += step) {
      const int32_t count = queries.count - i < step ? queries.count - i : step;
      AttentionTile(shape, queries, head, i, count, begin, end, scratch);
    }
    begin = end;
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_
