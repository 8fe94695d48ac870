// Stored K and V rows as floats, and the tile of query heads that reads them. Portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_STORED_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_STORED_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/attention_tile.h"
#include "engine/kernels/fetch_ahead.h"
#include "engine/kernels/halves.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

inline constexpr int64_t StoredBytes(RowType type, int64_t elements) {
  switch (type) {
    case RowType::kF32:
      return elements * 4;
    case RowType::kF16:
    case RowType::kBf16:
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
  } else if constexpr (kType == RowType::kBf16) {
    return WidenBrainHalves(row + element * 2);
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
    return LanesOf(quants) * SplatLanes(WidenHalf(scale));
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
    } else if constexpr (kType == RowType::kF16 || kType == RowType::kBf16) {
      uint16_t half;
      __builtin_memcpy(&half, row + (element + j) * 2, sizeof half);
      out[j] = kType == RowType::kF16 ? WidenHalf(half) : WidenBF16(half);
    }
  }
}

// The query heads that read one KV head together: each row of K and V is loaded once for all of
// them.
struct RowTile {
  int32_t count;                   // <= kAttentionRows
  const float* q[kAttentionRows];  // [dim]
  float* out[kAttentionRows];      // [dim]
  float* scores[kAttentionRows];   // [visible, whole vectors]
  float sums[kAttentionRows];      // of the softmax
  int32_t from[kAttentionRows];    // rows [from, visible) are seen; both increase
  int32_t visible[kAttentionRows];
  int32_t most;        // the last of them
  bool fetches_ahead;  // one query: each row is read once, from memory
};

// Rows from the one that is read to the one that is asked for. A KV head's part of a row is a line
// or a few, and the next row's a stride away: the processor's own prefetchers see no stream in it.
// Worth half the time of a decode step's attention.
inline constexpr int64_t kFetchAhead = 64;

// Where the KV head lies in the stored rows.
struct KvHead {
  const KvSegment* segments;
  int32_t dim;
  int64_t element;    // first element in K and V rows
  int64_t kv_stride;  // elements of a row
};

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_STORED_H_
