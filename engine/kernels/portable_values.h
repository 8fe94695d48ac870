// The weighted sum of V rows for a tile of query heads. Portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_VALUES_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_VALUES_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/portable_stored.h"

namespace lockstep::internal {
namespace {

// For each of some rows kChunks times 16 elements of the head: the running chains of a seg256
// segment over positions.
template <size_t kChunks>
struct ValueChains {
  Lanes of[kValueRows][kChunks];
};

// What a run of V rows is added to: elements from `element` on, of query rows [first, ...).
struct ValuePlace {
  const RowTile* tile;
  int32_t first;
  int64_t element;
  int32_t width;  // below 16 (with one chunk): so many elements are read, the others dropped
};

// chain = fma(weight, v, chain) over `count` V rows from position p on.
template <RowType kType, size_t kRowCount, size_t kChunks>
[[gnu::noinline]] void AddRows(const ValuePlace& place, const uint8_t* rows, int64_t row_bytes,
                               int32_t p, int32_t count, Lanes (*chains)[kChunks]) {
  const bool fetches_ahead = place.tile->fetches_ahead;
  const int64_t ahead = kFetchAhead * row_bytes + StoredBytes(kType, place.element);
  constexpr int64_t kWanted = StoredBytes(kType, int64_t{kChunks} * kLanes);
  const float* weights[kRowCount];
  Lanes chain[kRowCount][kChunks];
  LOCKSTEP_UNROLL for (size_t r = 0; r < kRowCount; ++r) {
    weights[r] = place.tile->scores[static_cast<size_t>(place.first) + r] + p;
    LOCKSTEP_UNROLL for (size_t c = 0; c < kChunks; ++c) chain[r][c] = chains[r][c];
  }
  for (int32_t i = 0; i < count; ++i) {
    const uint8_t* row = rows + i * row_bytes;
    if (fetches_ahead) FetchAhead(row, ahead, kWanted);
    Lanes v[kChunks];
    if (kChunks == 1 && place.width < kLanes) {
      float tail[kLanes];
      LoadTail<kType>(row, place.element, place.width, tail);
      v[0] = LoadLanes(tail);
    } else {
      LOCKSTEP_UNROLL for (size_t c = 0; c < kChunks; ++c) {
        v[c] = LoadStored<kType>(row, place.element + static_cast<int64_t>(c) * kLanes);
      }
    }
    LOCKSTEP_UNROLL for (size_t r = 0; r < kRowCount; ++r) {
      const Lanes weight = SplatLanes(weights[r][i]);
      LOCKSTEP_UNROLL for (size_t c = 0; c < kChunks; ++c) chain[r][c] =
          FmaLanes(weight, v[c], chain[r][c]);
    }
  }
  LOCKSTEP_UNROLL for (size_t r = 0; r < kRowCount; ++r) {
    LOCKSTEP_UNROLL for (size_t c = 0; c < kChunks; ++c) chains[r][c] = chain[r][c];
  }
}

template <RowType kType, size_t kRowCount, size_t kChunks>
inline void AddRowsOf(const ValuePlace& place, int32_t row_count, const uint8_t* rows,
                      int64_t row_bytes, int32_t p, int32_t count, Lanes (*chains)[kChunks]) {
  if constexpr (kRowCount > 1) {
    if (row_count < static_cast<int32_t>(kRowCount)) {
      return AddRowsOf<kType, kRowCount - 1, kChunks>(place, row_count, rows, row_bytes, p, count,
                                                      chains);
    }
  }
  AddRows<kType, kRowCount, kChunks>(place, rows, row_bytes, p, count, chains);
}

// Positions [begin, end), segment by segment, for query rows [place.first, + row_count).
template <size_t kChunks>
inline void AddPositions(const KvHead& head, const ValuePlace& place, int32_t row_count,
                         const KvSegment* segment, int32_t begin, int32_t end,
                         Lanes (*chains)[kChunks]) {
  for (int32_t p = begin; p < end;) {
    while (p - segment->first >= segment->count) ++segment;
    const int32_t skip = p - segment->first;
    const int32_t left = segment->count - skip;
    const int32_t count = end - p < left ? end - p : left;
    const int64_t bytes = StoredBytes(segment->value_type, head.kv_stride);
    const uint8_t* rows = reinterpret_cast<const uint8_t*>(segment->values) + skip * bytes;
    switch (segment->value_type) {
      case RowType::kF32:
        AddRowsOf<RowType::kF32, kValueRows>(place, row_count, rows, bytes, p, count, chains);
        break;
      case RowType::kF16:
        AddRowsOf<RowType::kF16, kValueRows>(place, row_count, rows, bytes, p, count, chains);
        break;
      case RowType::kBf16:
        AddRowsOf<RowType::kBf16, kValueRows>(place, row_count, rows, bytes, p, count, chains);
        break;
      case RowType::kQ8_0:
        AddRowsOf<RowType::kQ8_0, kValueRows>(place, row_count, rows, bytes, p, count, chains);
        break;
      case RowType::kQ4_0:
        AddRowsOf<RowType::kQ4_0, kValueRows>(place, row_count, rows, bytes, p, count, chains);
        break;
    }
    p += count;
  }
}

// Positions [begin, end), for each row those that it sees.
template <size_t kChunks>
inline void AddAlone(const KvHead& head, ValuePlace place, int32_t row_count,
                     const KvSegment* segment, int32_t begin, int32_t end,
                     Lanes (*chains)[kChunks]) {
  const int32_t first = place.first;
  for (int32_t r = 0; r < row_count; ++r) {
    place.first = first + r;
    const int32_t from = place.tile->from[first + r];
    const int32_t visible = place.tile->visible[first + r];
    AddPositions(head, place, 1, segment, from > begin ? from : begin,
                 visible < end ? visible : end, chains + r);
  }
}

template <size_t kChunks>
inline void StoreOutputs(const RowTile& tile, int32_t first, int32_t row_count, int32_t d,
                         int32_t width, const ValueChains<kChunks>& sums) {
  for (int32_t r = 0; r < row_count; ++r) {
    const Lanes divisor = SplatLanes(tile.sums[first + r]);
    LOCKSTEP_UNROLL for (size_t c = 0; c < kChunks; ++c) {
      const Lanes result = sums.of[r][c] / divisor;
      float* out = tile.out[first + r] + d + static_cast<int64_t>(c) * kLanes;
      if (width == kLanes) {
        StoreLanes(result, out);
      } else {
        float last[kLanes];
        StoreLanes(result, last);
        for (int32_t j = 0; j < width; ++j) out[j] = last[j];
      }
    }
  }
}

// out[j] = (seg256 over position of fma(e, v, acc)) / sum for the elements from d on: 16 kChunks of
// them, or `width` < 16, of query rows [first, first + row_count). The arithmetic's segments are
// 256 positions; the KvSegments are the cache's. Positions that not all rows see are added row by
// row.
template <size_t kChunks>
inline void WeightedValues(const KvHead& head, const RowTile& tile, int32_t first,
                           int32_t row_count, int32_t d, int32_t width) {
  ValueChains<kChunks> chains, sums;
  const int32_t least = tile.visible[first];  // visible increases, and so does from
  const int32_t most = tile.visible[first + row_count - 1];
  const int32_t latest = tile.from[first + row_count - 1];
  for (int32_t r = 0; r < row_count; ++r) {
    for (Lanes& sum : sums.of[r]) sum = SplatLanes(-0.0f);  // -0 + p is p, for every p
  }
  const KvSegment* segment = head.segments;
  for (int32_t begin = tile.from[first] / kSegment * kSegment; begin < most; begin += kSegment) {
    const int32_t end = most - begin < kSegment ? most : begin + kSegment;
    while (begin - segment->first >= segment->count) ++segment;
    for (int32_t r = 0; r < row_count; ++r) {
      for (Lanes& chain : chains.of[r]) chain = SplatLanes(0.0f);
    }
    const ValuePlace place = {
        .tile = &tile, .first = first, .element = head.element + d, .width = width};
    const int32_t joint_begin = latest > begin ? latest : begin;
    const int32_t joint = least < end ? least : end;
    if (joint_begin > begin) {
      AddAlone(head, place, row_count, segment, begin, joint_begin < end ? joint_begin : end,
               chains.of);
    }
    AddPositions(head, place, row_count, segment, joint_begin, joint, chains.of);
    AddAlone(head, place, row_count, segment, joint > joint_begin ? joint : joint_begin, end,
             chains.of);
    for (int32_t r = 0; r < row_count; ++r) {
      if (tile.visible[first + r] <= begin || tile.from[first + r] >= end) continue;
      LOCKSTEP_UNROLL for (size_t c = 0; c < kChunks; ++c) sums.of[r][c] =
          sums.of[r][c] + chains.of[r][c];
    }
  }
  StoreOutputs(tile, first, row_count, d, width, sums);
}

inline void ValueTile(const KvHead& head, const RowTile& tile) {
  constexpr auto kStep = static_cast<int32_t>(kValueChunks) * kLanes;
  for (int32_t first = 0; first < tile.count; first += kValueRows) {
    const int32_t left = tile.count - first;
    const int32_t row_count = left < kValueRows ? left : kValueRows;
    int32_t d = 0;
    for (; d + kStep <= head.dim; d += kStep) {
      WeightedValues<kValueChunks>(head, tile, first, row_count, d, kLanes);
    }
    for (; d < head.dim; d += kLanes) {
      const int32_t width = head.dim - d < kLanes ? head.dim - d : kLanes;
      WeightedValues<1>(head, tile, first, row_count, d, width);
    }
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_VALUES_H_
