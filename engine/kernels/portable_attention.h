// Attention of one query over segments of stored rows, read where they lie. Portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/attention_tile.h"
#include "engine/kernels/exp.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

inline int64_t StoredBytes(RowType type, int64_t elements) {
  switch (type) {
    case RowType::kF32:
      return elements * 4;
    case RowType::kF16:
      return elements * 2;
    case RowType::kQ8_0:
      return elements / kBlock * kQ8FileBytes;
    case RowType::kQ4_0:
      return elements / kBlock * kQ4FileBytes;
  }
  return 0;
}

// Elements [element, element + 16) of a stored row as F32, exact: q * d has at most 19 bits.
// REQUIRES: for the block formats, element is a multiple of 16.
template <RowType kType>
inline Lanes LoadStored(const uint8_t* row, int64_t element) {
  if constexpr (kType == RowType::kF32) {
    return LoadLanes(reinterpret_cast<const float*>(row) + element);
  } else if constexpr (kType == RowType::kF16) {
    return WidenHalves(row + element * 2);
  } else {
    constexpr bool kQ8 = kType == RowType::kQ8_0;
    const uint8_t* block = row + element / kBlock * (kQ8 ? kQ8FileBytes : kQ4FileBytes);
    uint16_t scale;
    __builtin_memcpy(&scale, block, sizeof scale);
    const bool upper = element % kBlock != 0;  // elements 16..31 of the block
    Bytes quants;
    __builtin_memcpy(&quants, block + 2 + (kQ8 && upper ? kLanes : 0), sizeof quants);
    if constexpr (!kQ8) {
      auto pairs = __builtin_bit_cast(Shorts8, quants);
      if (upper) pairs = pairs >> 4;
      quants = __builtin_bit_cast(Bytes, pairs & 0x0f0f) - 8;
    }
    return LanesOf(quants) * SplatLanes(WidenF16(scale));
  }
}

// The last, short run of a head: `count` < 16 elements, which block formats do not have; then
// zeros.
template <RowType kType>
inline void LoadTail(const uint8_t* row, int64_t element, int32_t count, float (&out)[kLanes]) {
  for (int32_t j = 0; j < kLanes; ++j) {
    out[j] = 0.0f;
    if (j >= count) continue;
    if constexpr (kType == RowType::kF32) {
      __builtin_memcpy(out + j, row + (element + j) * 4, sizeof(float));
    } else if constexpr (kType == RowType::kF16) {
      uint16_t half;
      __builtin_memcpy(&half, row + (element + j) * 2, sizeof half);
      out[j] = WidenF16(half);
    }
  }
}

// One query head and where its KV head lies in a row.
struct Head {
  const float* q;  // [dim]
  int32_t dim;
  int64_t element;    // first element in K and V rows
  int64_t kv_stride;  // elements of a row
};

// scores[i] = (tree16 over d of fma(q, k, acc)) * scale for `count` rows.
// Returns the larger of `top` and their maximum.
template <RowType kType>
inline float ScoreRows(const Head& head, const uint8_t* rows, int32_t count, float scale, float top,
                       float* scores) {
  const int64_t row_bytes = StoredBytes(kType, head.kv_stride);
  const int32_t whole = head.dim / kLanes * kLanes;
  for (int32_t i = 0; i < count; ++i) {
    const uint8_t* row = rows + i * row_bytes;
    Lanes acc = SplatLanes(0.0f);
    for (int32_t d = 0; d < whole; d += kLanes) {
      acc = FmaLanes(LoadLanes(head.q + d), LoadStored<kType>(row, head.element + d), acc);
    }
    if (whole < head.dim) {
      float k[kLanes];
      LoadTail<kType>(row, head.element + whole, head.dim - whole, k);
      acc = FmaFirstLanes(head.q + whole, k, head.dim - whole, acc);
    }
    scores[i] = SumLanes(acc) * scale;
    top = scores[i] > top ? scores[i] : top;
  }
  return top;
}

inline float ScoreSegment(const Head& head, const KvSegment& segment, int32_t count, float scale,
                          float top, float* scores) {
  const auto* rows = reinterpret_cast<const uint8_t*>(segment.keys);
  switch (segment.key_type) {
    case RowType::kF32:
      return ScoreRows<RowType::kF32>(head, rows, count, scale, top, scores);
    case RowType::kF16:
      return ScoreRows<RowType::kF16>(head, rows, count, scale, top, scores);
    case RowType::kQ8_0:
      return ScoreRows<RowType::kQ8_0>(head, rows, count, scale, top, scores);
    case RowType::kQ4_0:
      return ScoreRows<RowType::kQ4_0>(head, rows, count, scale, top, scores);
  }
  return top;
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
  if (whole < visible) {
    float sums[kLanes];
    StoreLanes(acc, sums);
    for (int32_t p = whole; p < visible; ++p) {
      scores[p] = Exp(scores[p] - top);
      sums[p - whole] += scores[p];
    }
    acc = LoadLanes(sums);
  }
  return SumLanes(acc);
}

// `kCount` times 16 elements of a head: the chains and sums of seg256 over positions.
template <size_t kCount>
struct ValueChains {
  Lanes chain[kCount];
  Lanes sum[kCount];
};

// chain = fma(weight, v, chain) over `count` rows, for the 16 kCount elements from `element` on.
// A `width` below 16 (with kCount 1) reads that many; the other lanes compute and are dropped.
template <RowType kType, size_t kCount>
inline void AddRows(const uint8_t* rows, int64_t row_bytes, int32_t count, const float* weights,
                    int64_t element, int32_t width, ValueChains<kCount>* chains) {
  for (int32_t i = 0; i < count; ++i) {
    const uint8_t* row = rows + i * row_bytes;
    const Lanes weight = SplatLanes(weights[i]);
    if (width < kLanes) {
      float v[kLanes];
      LoadTail<kType>(row, element, width, v);
      chains->chain[0] = FmaLanes(weight, LoadLanes(v), chains->chain[0]);
      continue;
    }
    for (size_t c = 0; c < kCount; ++c) {
      const Lanes v = LoadStored<kType>(row, element + static_cast<int64_t>(c) * kLanes);
      chains->chain[c] = FmaLanes(weight, v, chains->chain[c]);
    }
  }
}

template <size_t kCount>
inline void AddSegment(const KvSegment& segment, int64_t kv_stride, int32_t skip, int32_t count,
                       const float* weights, int64_t element, int32_t width,
                       ValueChains<kCount>* chains) {
  const int64_t bytes = StoredBytes(segment.value_type, kv_stride);
  const uint8_t* rows = reinterpret_cast<const uint8_t*>(segment.values) + skip * bytes;
  switch (segment.value_type) {
    case RowType::kF32:
      return AddRows<RowType::kF32>(rows, bytes, count, weights, element, width, chains);
    case RowType::kF16:
      return AddRows<RowType::kF16>(rows, bytes, count, weights, element, width, chains);
    case RowType::kQ8_0:
      return AddRows<RowType::kQ8_0>(rows, bytes, count, weights, element, width, chains);
    case RowType::kQ4_0:
      return AddRows<RowType::kQ4_0>(rows, bytes, count, weights, element, width, chains);
  }
}

// out[j] = (seg256 over position of fma(e, v, acc)) / sum for the elements from d on: 16 kCount of
// them, or `width` < 16. The arithmetic's segments are 256 positions; the KvSegments are the
// cache's.
template <size_t kCount>
inline void WeightedValues(const Head& head, const KvSegment* segments, const float* weights,
                           int32_t visible, float sum, int32_t d, int32_t width, float* out) {
  ValueChains<kCount> chains;
  for (Lanes& total : chains.sum) total = SplatLanes(-0.0f);  // -0 + p is p, for every p
  const KvSegment* segment = segments;
  for (int32_t begin = 0; begin < visible; begin += kSegment) {
    const int32_t end = visible - begin < kSegment ? visible : begin + kSegment;
    for (Lanes& chain : chains.chain) chain = SplatLanes(0.0f);
    for (int32_t p = begin; p < end;) {
      while (p - segment->first >= segment->count) ++segment;
      const int32_t skip = p - segment->first;
      const int32_t rows_left = segment->count - skip;
      const int32_t count = end - p < rows_left ? end - p : rows_left;
      AddSegment(*segment, head.kv_stride, skip, count, weights + p, head.element + d, width,
                 &chains);
      p += count;
    }
    for (size_t c = 0; c < kCount; ++c) chains.sum[c] = chains.sum[c] + chains.chain[c];
  }
  for (size_t c = 0; c < kCount; ++c) {
    const Lanes result = chains.sum[c] / SplatLanes(sum);
    if (width == kLanes) {
      StoreLanes(result, out + static_cast<size_t>(d) + c * kLanes);
    } else {
      float last[kLanes];
      StoreLanes(result, last);
      for (int32_t j = 0; j < width; ++j) out[d + j] = last[j];
    }
  }
}

inline void AttentionHead(const Head& head, const KvSegment* segments, int32_t visible, float scale,
                          float* scores, float* out) {
  float top = -__builtin_inff();
  const KvSegment* segment = segments;
  for (int32_t p = 0; p < visible; ++segment) {
    const int32_t count = visible - p < segment->count ? visible - p : segment->count;
    top = ScoreSegment(head, *segment, count, scale, top, scores + p);
    p += count;
  }
  const float sum = SoftmaxWeights(scores, visible, top);
  int32_t d = 0;
  for (; d + 4 * kLanes <= head.dim; d += 4 * kLanes) {
    WeightedValues<4>(head, segments, scores, visible, sum, d, kLanes, out);
  }
  for (; d < head.dim; d += kLanes) {
    const int32_t width = head.dim - d < kLanes ? head.dim - d : kLanes;
    WeightedValues<1>(head, segments, scores, visible, sum, d, width, out);
  }
}

inline void Attention(const AttentionShape& shape, const AttentionQueries& queries,
                      const KvSegment* segments, int32_t head_begin, int32_t head_end,
                      float* scratch) {
  const int32_t dim = shape.head_dim;
  const int32_t heads_per_kv_head = shape.num_heads / shape.num_kv_heads;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  for (int32_t i = 0; i < queries.count; ++i) {
    for (int32_t h = head_begin; h < head_end; ++h) {
      const int64_t at = (int64_t{i} * shape.num_heads + h) * dim;
      const Head head = {
          .q = queries.q + at,
          .dim = dim,
          .element = int64_t{h / heads_per_kv_head} * dim,
          .kv_stride = int64_t{shape.num_kv_heads} * dim,
      };
      AttentionHead(head, segments, queries.visible[i], scale, scratch, queries.out + at);
    }
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_
