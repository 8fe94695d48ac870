// Attention of one query over segments of stored rows, read where they lie. Portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_

#include <cstdint>

#include "engine/kernels/exp.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

inline constexpr int32_t kLanes = 16;

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

// Elements [element, element + kLanes) of a stored row as F32, exact: q * d has at most 19 bits.
// REQUIRES: element is a multiple of 16, all 16 elements exist.
template <RowType kType>
inline void LoadLanes(const uint8_t* row, int64_t element, float* out) {
  if constexpr (kType == RowType::kF32) {
    __builtin_memcpy(out, row + element * 4, kLanes * sizeof(float));
  } else if constexpr (kType == RowType::kF16) {
    uint16_t halves[kLanes];
    __builtin_memcpy(halves, row + element * 2, sizeof halves);
    for (int j = 0; j < kLanes; ++j) out[j] = WidenF16(halves[j]);
  } else {
    constexpr bool kQ8 = kType == RowType::kQ8_0;
    const uint8_t* block = row + element / kBlock * (kQ8 ? kQ8FileBytes : kQ4FileBytes);
    uint16_t scale_bits;
    __builtin_memcpy(&scale_bits, block, sizeof scale_bits);
    const float d = WidenF16(scale_bits);
    const bool upper = element % kBlock != 0;
    const uint8_t* quants = block + 2 + (kQ8 && upper ? kLanes : 0);
    for (int j = 0; j < kLanes; ++j) {
      const int q8 = static_cast<int8_t>(quants[j]);
      const int q4 = ((upper ? quants[j] >> 4 : quants[j]) & 15) - 8;
      out[j] = static_cast<float>(kQ8 ? q8 : q4) * d;
    }
  }
}

// The last, short run of a head: `count` < 16 elements, which block formats do not have.
template <RowType kType>
inline void LoadTail(const uint8_t* row, int64_t element, int32_t count, float* out) {
  for (int32_t j = 0; j < count; ++j) {
    const uint8_t* at = row + (element + j) * (kType == RowType::kF32 ? 4 : 2);
    if constexpr (kType == RowType::kF32) {
      __builtin_memcpy(out + j, at, sizeof(float));
    } else {
      uint16_t half;
      __builtin_memcpy(&half, at, sizeof half);
      out[j] = WidenF16(half);
    }
  }
}

template <RowType kType>
inline void LoadRun(const uint8_t* row, int64_t element, int32_t count, float* out) {
  if (count == kLanes) return LoadLanes<kType>(row, element, out);
  LoadTail<kType>(row, element, count, out);
}

inline int32_t RunLength(int32_t begin, int32_t end) {
  return end - begin < kLanes ? end - begin : kLanes;
}

// lanes[j] = fma(a[j], b[j], lanes[j]) for count <= 16 lanes.
inline void FmaRun(const float* a, const float* b, int32_t count, float* lanes) {
  if (count == kLanes) return FmaLanes<kLanes>(a, b, lanes, lanes);
  for (int32_t j = 0; j < count; ++j) lanes[j] = Fma(a[j], b[j], lanes[j]);
}

// tree16 over d of fma(q, k, acc) for `rows` rows; returns the larger of `top` and their maximum.
template <RowType kType>
inline float ScoreRows(const float* q, const uint8_t* rows, int32_t count, int64_t row_bytes,
                       int64_t element, int32_t head_dim, float scale, float* scores, float top) {
  for (int32_t i = 0; i < count; ++i) {
    const uint8_t* row = rows + i * row_bytes;
    float lanes[kLanes] = {};
    for (int32_t d = 0; d < head_dim; d += kLanes) {
      const int32_t n = RunLength(d, head_dim);
      float k[kLanes];
      LoadRun<kType>(row, element + d, n, k);
      FmaRun(q + d, k, n, lanes);
    }
    const float score = SumLanes(lanes) * scale;
    scores[i] = score;
    top = score > top ? score : top;
  }
  return top;
}

// chain[j] = fma(weight, v, chain[j]) over `count` rows, for n <= 16 elements of the head.
template <RowType kType>
inline void AddRows(const float* weights, const uint8_t* rows, int32_t count, int64_t row_bytes,
                    int64_t element, int32_t n, float* chain) {
  for (int32_t i = 0; i < count; ++i) {
    float v[kLanes];
    LoadRun<kType>(rows + i * row_bytes, element, n, v);
    if (n == kLanes) {
      FmaLanes<kLanes>(v, weights[i], chain);
    } else {
      for (int32_t j = 0; j < n; ++j) chain[j] = Fma(weights[i], v[j], chain[j]);
    }
  }
}

inline float ScoreSegment(const KvSegment& segment, const float* q, int32_t count, int64_t stride,
                          int64_t element, int32_t head_dim, float scale, float* scores,
                          float top) {
  const auto* rows = reinterpret_cast<const uint8_t*>(segment.keys);
  const int64_t bytes = StoredBytes(segment.key_type, stride);
  const auto run = [&](auto score_rows) {
    return score_rows(q, rows, count, bytes, element, head_dim, scale, scores, top);
  };
  switch (segment.key_type) {
    case RowType::kF32:
      return run(ScoreRows<RowType::kF32>);
    case RowType::kF16:
      return run(ScoreRows<RowType::kF16>);
    case RowType::kQ8_0:
      return run(ScoreRows<RowType::kQ8_0>);
    case RowType::kQ4_0:
      return run(ScoreRows<RowType::kQ4_0>);
  }
  return top;
}

inline void AddSegment(const KvSegment& segment, const float* weights, int32_t skip, int32_t count,
                       int64_t stride, int64_t element, int32_t n, float* chain) {
  const int64_t bytes = StoredBytes(segment.value_type, stride);
  const uint8_t* rows = reinterpret_cast<const uint8_t*>(segment.values) + skip * bytes;
  const auto run = [&](auto add_rows) { add_rows(weights, rows, count, bytes, element, n, chain); };
  switch (segment.value_type) {
    case RowType::kF32:
      return run(AddRows<RowType::kF32>);
    case RowType::kF16:
      return run(AddRows<RowType::kF16>);
    case RowType::kQ8_0:
      return run(AddRows<RowType::kQ8_0>);
    case RowType::kQ4_0:
      return run(AddRows<RowType::kQ4_0>);
  }
}

// scores[p] becomes exp(scores[p] - top); returns tree16 over p of them.
inline float SoftmaxWeights(float* scores, int32_t visible, float top) {
  float lanes[kLanes] = {};
  for (int32_t p = 0; p < visible; p += kLanes) {
    const int32_t n = RunLength(p, visible);
    for (int32_t j = 0; j < n; ++j) scores[p + j] -= top;
    ExpRun(n, scores + p);
    for (int32_t j = 0; j < n; ++j) lanes[j] += scores[p + j];
  }
  return SumLanes(lanes);
}

// seg256 over position of fma(e, v, acc) for n <= 16 elements of one head, divided by the sum.
// The segments of 256 positions are the arithmetic's; the KvSegments are the cache's.
inline void WeightedValues(const KvSegment* segments, const float* weights, int32_t visible,
                           int64_t stride, int64_t element, int32_t n, float sum, float* out) {
  float total[kLanes];
  for (int32_t j = 0; j < kLanes; ++j) total[j] = -0.0f;  // -0 + p is p, for every p
  const KvSegment* segment = segments;
  for (int32_t begin = 0; begin < visible; begin += kSegment) {
    const int32_t end = visible - begin < kSegment ? visible : begin + kSegment;
    float chain[kLanes] = {};
    for (int32_t p = begin; p < end;) {
      while (p - segment->first >= segment->count) ++segment;
      const int32_t skip = p - segment->first;
      const int32_t rows_left = segment->count - skip;
      const int32_t count = end - p < rows_left ? end - p : rows_left;
      AddSegment(*segment, weights + p, skip, count, stride, element, n, chain);
      p += count;
    }
    for (int32_t j = 0; j < kLanes; ++j) total[j] += chain[j];
  }
  for (int32_t j = 0; j < n; ++j) out[j] = total[j] / sum;
}

inline void Attention(const AttentionShape& shape, const float* q, const KvSegment* segments,
                      int32_t visible, float* scores, float* out) {
  const int32_t head_dim = shape.head_dim;
  const int32_t group = shape.num_heads / shape.num_kv_heads;
  const int64_t stride = int64_t{shape.num_kv_heads} * head_dim;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(head_dim));
  for (int32_t h = 0; h < shape.num_heads; ++h) {
    const int64_t element = int64_t{h / group} * head_dim;
    const float* query = q + int64_t{h} * head_dim;
    float top = -__builtin_inff();
    const KvSegment* segment = segments;
    for (int32_t p = 0; p < visible; ++segment) {
      const int32_t count = visible - p < segment->count ? visible - p : segment->count;
      top = ScoreSegment(*segment, query, count, stride, element, head_dim, scale, scores + p, top);
      p += count;
    }
    const float sum = SoftmaxWeights(scores, visible, top);
    for (int32_t d = 0; d < head_dim; d += kLanes) {
      WeightedValues(segments, scores, visible, stride, element + d, RunLength(d, head_dim), sum,
                     out + int64_t{h} * head_dim + d);
    }
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_ATTENTION_H_
