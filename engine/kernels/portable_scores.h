// Attention scores of a tile of query heads, kWidth positions at a time, one a lane. Portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_SCORES_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_SCORES_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/portable_stored.h"

namespace lockstep::internal {
namespace {

// The keys of kWidth positions: row i starts at base + i * stride.
struct KeyBlock {
  const float* base;
  int64_t stride;  // floats
};

template <RowType kType>
inline void DecodeKey(const uint8_t* row, int64_t element, int32_t dim, float* out) {
  int32_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    StoreLanes(LoadStored<kType>(row, element + d), out + d);
  }
  if (d < dim) {
    float tail[kLanes];
    LoadTail<kType>(row, element + d, dim - d, tail);
    StoreLanes(LoadLanes(tail), out + d);  // padded with zeros
  }
}

inline void DecodeKeyOf(RowType type, const uint8_t* row, int64_t element, int32_t dim,
                        float* out) {
  switch (type) {
    case RowType::kF32:
      return DecodeKey<RowType::kF32>(row, element, dim, out);
    case RowType::kF16:
      return DecodeKey<RowType::kF16>(row, element, dim, out);
    case RowType::kBf16:
      return DecodeKey<RowType::kBf16>(row, element, dim, out);
    case RowType::kQ8_0:
      return DecodeKey<RowType::kQ8_0>(row, element, dim, out);
    case RowType::kQ4_0:
      return DecodeKey<RowType::kQ4_0>(row, element, dim, out);
  }
}

// The keys of positions [p, p + kWidth), read in place where they are floats in one piece, else
// decoded into `scratch`. Of positions outside [begin, end) nothing is read; `segment` moves on to
// the segment of the first that is read.
inline KeyBlock KeysAt(const KvHead& head, int32_t p, int32_t begin, int32_t end,
                       const KvSegment** segment, bool fetches_ahead, float* scratch) {
  const int32_t skipped = p < begin ? begin - p : 0;  // rows may begin behind p
  while (p + skipped - (*segment)->first >= (*segment)->count) ++*segment;
  const KvSegment* at = *segment;
  const int64_t bytes = StoredBytes(at->key_type, head.kv_stride);
  const uint8_t* row =
      reinterpret_cast<const uint8_t*>(at->keys) + int64_t{p + skipped - at->first} * bytes;
  if (fetches_ahead) {
    const int64_t ahead = kFetchAhead * bytes + StoredBytes(at->key_type, head.element);
    const int64_t wanted = StoredBytes(at->key_type, head.dim);
    for (int32_t i = 0; i < kWidth; ++i) FetchAhead(row, ahead + i * bytes, wanted);
  }
  const bool whole = p >= begin && p + kWidth <= end && p - at->first + kWidth <= at->count;
  if (whole && at->key_type == RowType::kF32 && head.dim % kLanes == 0) {
    return {.base = reinterpret_cast<const float*>(row) + head.element, .stride = head.kv_stride};
  }
  const int64_t stride = ScoreStride(head.dim);
  for (int32_t i = skipped; i < kWidth && p + i < end; ++i) {
    while (p + i - at->first >= at->count) {
      ++at;
      row = reinterpret_cast<const uint8_t*>(at->keys) +
            int64_t{p + i - at->first} * StoredBytes(at->key_type, head.kv_stride);
    }
    DecodeKeyOf(at->key_type, row, head.element, head.dim, scratch + i * stride);
    row += StoredBytes(at->key_type, head.kv_stride);
  }
  return {.base = scratch, .stride = stride};
}

// (tree16 over d of fma(q, k, acc)) for kQueries query rows and kWidth / kQueries positions from
// `first` on: one a lane, the positions of a row side by side. Rows are padded with zeros to whole
// runs of 16: fma(0, 0, acc) is acc, but that it makes +0 of -0, and exp(score - m) is the same for
// both.
template <size_t kQueries>
inline Floats Scores(const float* const* q, const KeyBlock& keys, size_t first, int32_t dim) {
  constexpr size_t kPositions = kWidth / kQueries;
  constexpr size_t kChains = kScoreChains / kQueries;
  constexpr size_t kAtOnce = kPositions < kChains ? kPositions : kChains;
  Floats folded[kWidth];
  LOCKSTEP_UNROLL for (size_t begin = 0; begin < kPositions; begin += kAtOnce) {
    const float* base = keys.base + static_cast<int64_t>(first + begin) * keys.stride;
    Lanes acc[kQueries][kAtOnce];
    LOCKSTEP_UNROLL for (size_t r = 0; r < kQueries; ++r) {
      LOCKSTEP_UNROLL for (size_t i = 0; i < kAtOnce; ++i) acc[r][i] = SplatLanes(0.0f);
    }
    for (int32_t d = 0; d < dim; d += kLanes) {
      Lanes x[kQueries];
      LOCKSTEP_UNROLL for (size_t r = 0; r < kQueries; ++r) x[r] = LoadLanes(q[r] + d);
      LOCKSTEP_UNROLL for (size_t i = 0; i < kAtOnce; ++i) {
        const Lanes key = LoadLanes(base + static_cast<int64_t>(i) * keys.stride + d);
        LOCKSTEP_UNROLL for (size_t r = 0; r < kQueries; ++r) {
          acc[r][i] = FmaLanes(x[r], key, acc[r][i]);
        }
      }
    }
    LOCKSTEP_UNROLL for (size_t r = 0; r < kQueries; ++r) {
      LOCKSTEP_UNROLL for (size_t i = 0; i < kAtOnce; ++i) {
        folded[r * kPositions + begin + i] = FoldToVector(acc[r][i]);
      }
    }
  }
  return SumEach(folded);
}

// Scores of kWidth positions from p on for kQueries rows of the tile.
template <size_t kQueries>
inline void ScoreRows(const RowTile& tile, int32_t r, int32_t p, const KeyBlock& keys, int32_t dim,
                      float scale) {
  constexpr size_t kPositions = kWidth / kQueries;
  for (size_t first = 0; first < kWidth; first += kPositions) {
    const Floats scores = Scores<kQueries>(tile.q + r, keys, first, dim) * scale;
    for (size_t i = 0; i < kQueries; ++i) {
      __builtin_memcpy(tile.scores[static_cast<size_t>(r) + i] + p + first,
                       reinterpret_cast<const float*>(&scores) + i * kPositions,
                       kPositions * sizeof(float));
    }
  }
}

inline void ScoreTile(const KvHead& head, const RowTile& tile, float scale, float* scratch) {
  const KvSegment* segment = head.segments;
  const int32_t begin = tile.from[0];
  for (int32_t p = begin / kLanes * kLanes; p < tile.most; p += kWidth) {
    const KeyBlock keys = KeysAt(head, p, begin, tile.most, &segment, tile.fetches_ahead, scratch);
    int32_t r = 0;
    while (r < tile.count && p >= tile.visible[r]) ++r;  // visible increases
    for (; r + kScoreRows <= tile.count; r += kScoreRows) {
      ScoreRows<kScoreRows>(tile, r, p, keys, head.dim, scale);
    }
    for (; r < tile.count; ++r) ScoreRows<1>(tile, r, p, keys, head.dim, scale);
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_SCORES_H_
