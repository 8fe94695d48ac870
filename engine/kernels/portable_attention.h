// Attention over segments of stored rows, read where they lie. Portable C++.
//
// A tile is up to 16 query heads that read the same KV head: the heads of a group, of several
// queries. Scores first, then the softmax, then the values.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/exp.h"
#include "engine/kernels/portable_gate.h"
#include "engine/kernels/portable_scores.h"
#include "engine/kernels/portable_values.h"

namespace lockstep::internal {
namespace {

// The largest of scores[from, visible), -infinity when none is a number above it.
inline float MaxScore(const float* scores, int32_t from, int32_t visible) {
  const int32_t whole = visible / kLanes * kLanes;
  const int32_t begin = (from + kLanes - 1) / kLanes * kLanes;
  Lanes top = SplatLanes(-__builtin_inff());
  for (int32_t p = begin; p < whole; p += kLanes) {
    const Lanes x = LoadLanes(scores + p);
    for (int i = 0; i < kParts; ++i)
      top.part[i] = x.part[i] > top.part[i] ? x.part[i] : top.part[i];
  }
  float lanes[kLanes];
  StoreLanes(top, lanes);
  float best = -__builtin_inff();
  for (float lane : lanes) best = lane > best ? lane : best;
  const int32_t head = begin < visible ? begin : visible;
  for (int32_t p = from; p < head; ++p) best = scores[p] > best ? scores[p] : best;
  const int32_t tail = begin < whole ? whole : begin;
  for (int32_t p = tail; p < visible; ++p) best = scores[p] > best ? scores[p] : best;
  return best;
}

// The weights of positions [from, to) of one run of 16 from `run` on; the rest of it is dropped.
inline Lanes AddWeights(float* scores, int32_t run, int32_t from, int32_t to, float top,
                        const Lanes& acc) {
  float sums[kLanes], weights[kLanes];
  StoreLanes(acc, sums);
  StoreLanes(ExpLanes(LoadLanes(scores + run) - SplatLanes(top)), weights);
  for (int32_t p = from; p < to; ++p) {
    scores[p] = weights[p - run];
    sums[p - run] += weights[p - run];
  }
  return LoadLanes(sums);
}

// scores[p] becomes exp(scores[p] - top) for p in [from, visible); returns tree16 over p of them.
inline float SoftmaxWeights(float* scores, int32_t from, int32_t visible, float top) {
  const int32_t whole = visible / kLanes * kLanes;
  int32_t begin = from / kLanes * kLanes;
  Lanes acc = SplatLanes(0.0f);
  if (begin < from) {
    const int32_t end = begin + kLanes;
    acc = AddWeights(scores, begin, from, end < visible ? end : visible, top, acc);
    begin = end;
  }
  for (int32_t p = begin; p < whole; p += kLanes) {
    const Lanes e = ExpLanes(LoadLanes(scores + p) - SplatLanes(top));
    StoreLanes(e, scores + p);
    acc = acc + e;
  }
  // The row is whole vectors long.
  if (begin <= whole && whole < visible) {
    acc = AddWeights(scores, whole, whole, visible, top, acc);
  }
  return SumLanes(acc);
}

// The query row, or where it is no whole runs of 16 a copy that is padded with zeros.
inline const float* QueryRow(const float* q, int32_t dim, float* padded) {
  if (dim % kLanes == 0) return q;
  for (int32_t d = 0; d < ScoreStride(dim); ++d) padded[d] = d < dim ? q[d] : 0.0f;
  return padded;
}

// The first row that a query sees.
inline int32_t FirstVisible(const AttentionShape& shape, int32_t visible) {
  return shape.window > 0 && visible > shape.window ? visible - shape.window : 0;
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
      tile.from[tile.count] = FirstVisible(shape, queries.visible[i]);
      ++tile.count;
    }
  }
  const float scale =
      shape.scale != 0 ? shape.scale : 1.0f / __builtin_sqrtf(static_cast<float>(head.dim));
  ScoreTile(head, tile, scale, keys);
  if (shape.cap != 0) {
    const int32_t begin = tile.from[0] / kLanes * kLanes;
    for (int32_t r = 0; r < tile.count; ++r) {
      SoftCap(shape.cap, tile.visible[r] - begin, tile.scores[r] + begin);
    }
  }
  for (int32_t r = 0; r < tile.count; ++r) {
    const float top = MaxScore(tile.scores[r], tile.from[r], tile.visible[r]);
    tile.sums[r] = SoftmaxWeights(tile.scores[r], tile.from[r], tile.visible[r], top);
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
