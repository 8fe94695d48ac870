// matmul in portable C++: the 16 rows of a group are the lanes of lanes.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/halves.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/token_tiles.h"

namespace lockstep::internal {
namespace {

// 16 weights of a float group, widened.
template <GgmlType kType>
inline Lanes LoadWeights(const uint8_t* at) {
  if constexpr (kType == GgmlType::kF32) return LoadLanes(reinterpret_cast<const float*>(at));
  if constexpr (kType == GgmlType::kF16) return WidenHalves(at);
  if constexpr (kType == GgmlType::kBF16) return WidenBrainHalves(at);
}

// seg256 of T tokens: the running chains of a segment and the sums of the finished ones.
template <size_t T>
struct Chains {
  Lanes chain[T];
  Lanes sum[T];

  Chains() {
    for (size_t t = 0; t < T; ++t) {
      chain[t] = SplatLanes(0.0f);
      sum[t] = SplatLanes(-0.0f);  // -0 + p is p, for every p
    }
  }

  void CloseSegment() {
    LOCKSTEP_UNROLL for (size_t t = 0; t < T; ++t) {
      sum[t] = sum[t] + chain[t];
      chain[t] = SplatLanes(0.0f);
    }
  }
};

// seg256 over k for 16 rows and T tokens; values: [T, cols].
template <GgmlType kType, size_t T>
inline Chains<T> FloatGroup(const uint8_t* group, int32_t cols, const float* values) {
  const float* rows[T];
  for (size_t t = 0; t < T; ++t) rows[t] = values + t * static_cast<size_t>(cols);
  Chains<T> chains;
  for (int32_t begin = 0; begin < cols; begin += kSegment) {
    const int32_t end = cols - begin < kSegment ? cols : begin + kSegment;
    for (int32_t k = begin; k < end; ++k) {
      const Lanes w = LoadWeights<kType>(group + int64_t{k} * kLineBytes);
      LOCKSTEP_UNROLL for (size_t t = 0; t < T; ++t) {
        chains.chain[t] = FmaLanes(w, SplatLanes(rows[t][k]), chains.chain[t]);
      }
    }
    chains.CloseSegment();
  }
  return chains;
}

using Shorts = int16_t __attribute__((vector_size(kVectorBytes)));

// The low and the high byte of each 16-bit lane, sign-extended. Of 4 consecutive k in a 32-bit lane
// the low ones are k = 0 and 2, the high ones k = 1 and 3.
template <typename Vector>
inline Vector LowBytes(Vector v) {
  return (v << 8) >> 8;
}
template <typename Vector>
inline Vector HighBytes(Vector v) {
  return v >> 8;
}

// One block of a token's quants, split as the weights are: lane i holds k = 4 i and 4 i + 2, or
// k = 4 i + 1 and 4 i + 3.
struct QuantPairs {
  int32_t even[kBlock / 4];
  int32_t odd[kBlock / 4];
};

inline QuantPairs SplitQuants(const int8_t* quants) {
  QuantPairs pairs;
  for (int part = 0; part < 2; ++part) {
    Shorts8 v;
    __builtin_memcpy(&v, quants + 16 * part, sizeof v);
    const Shorts8 even = LowBytes(v);
    const Shorts8 odd = HighBytes(v);
    __builtin_memcpy(pairs.even + 4 * part, &even, sizeof even);
    __builtin_memcpy(pairs.odd + 4 * part, &odd, sizeof odd);
  }
  return pairs;
}

inline Shorts Splat(int32_t pair) { return __builtin_bit_cast(Shorts, Ints{} + pair); }

inline Ints LoadLine(const uint8_t* at) {
  Ints line;
  __builtin_memcpy(&line, at, sizeof line);
  return line;
}

// sums[t][r] = sum over the block's k of w[r, k] * xq[t, k], exact: a product is at most 128 * 127,
// so two of them fit 16 bits.
template <size_t T>
inline void BlockSumsQ8(const uint8_t* lines, const QuantPairs* x, int32_t (&sums)[T][kRows]) {
  for (int part = 0; part < kLineBytes / kVectorBytes; ++part) {
    Ints low[T] = {};
    Ints high[T] = {};
    for (int i = 0; i < kQ8Lines; ++i) {
      const Ints line = LoadLine(lines + i * kLineBytes + part * kVectorBytes);
      const auto w = __builtin_bit_cast(Shorts, line ^ static_cast<int32_t>(0x80808080));
      const Shorts even = LowBytes(w);
      const Shorts odd = HighBytes(w);
      for (size_t t = 0; t < T; ++t) {
        const Shorts products = even * Splat(x[t].even[i]) + odd * Splat(x[t].odd[i]);
        const auto pairs = __builtin_bit_cast(Ints, products);
        low[t] += (pairs << 16) >> 16;
        high[t] += pairs >> 16;
      }
    }
    for (size_t t = 0; t < T; ++t) {
      const Ints sum = low[t] + high[t];
      __builtin_memcpy(sums[t] + part * (kVectorBytes / 4), &sum, sizeof sum);
    }
  }
}

// The same for nibbles. A block's 16 products in one 16-bit lane, with nibbles of 0 to 15, are at
// most 16 * 15 * 127 = 30480; the bias of 8 comes off at the end.
template <size_t T>
inline void BlockSumsQ4(const uint8_t* lines, const QuantPairs* x, const int32_t (&offsets)[T],
                        int32_t (&sums)[T][kRows]) {
  for (int part = 0; part < kLineBytes / kVectorBytes; ++part) {
    Shorts products[T] = {};
    for (int i = 0; i < kQ4Lines; ++i) {
      const auto w =
          __builtin_bit_cast(Shorts, LoadLine(lines + i * kLineBytes + part * kVectorBytes));
      for (size_t t = 0; t < T; ++t) {
        products[t] += (w & 15) * Splat(x[t].even[i]) + ((w >> 8) & 15) * Splat(x[t].odd[i]);
        products[t] += ((w >> 4) & 15) * Splat(x[t].even[i + kQ4Lines]) +
                       ((w >> 12) & 15) * Splat(x[t].odd[i + kQ4Lines]);
      }
    }
    for (size_t t = 0; t < T; ++t) {
      const auto pairs = __builtin_bit_cast(Ints, products[t]);
      const Ints sum = ((pairs << 16) >> 16) + (pairs >> 16) + offsets[t] / 16;
      __builtin_memcpy(sums[t] + part * (kVectorBytes / 4), &sum, sizeof sum);
    }
  }
}

// seg256 over k, 8 blocks a segment, for 16 rows and T tokens from token `first` on.
template <GgmlType kType, size_t T>
inline Chains<T> QuantGroup(const uint8_t* group, const Activations& x, int64_t first) {
  constexpr bool kQ8 = kType == GgmlType::kQ8_0;
  constexpr int32_t kLines = kQ8 ? kQ8Lines : kQ4Lines;
  const int32_t blocks = x.cols / kBlock;
  Chains<T> chains;
  for (int32_t b = 0; b < blocks; ++b) {
    const uint8_t* lines = group + LinesAt(kLines, b);
    QuantPairs pairs[T];
    int32_t offsets[T];
    float scales[T];
    for (size_t t = 0; t < T; ++t) {
      const ActivationBlock& block = x.blocks[(first + static_cast<int64_t>(t)) * blocks + b];
      pairs[t] = SplitQuants(block.quants);
      offsets[t] = block.offset;
      scales[t] = block.scale;
    }
    int32_t dots[T][kRows];
    if constexpr (kQ8) {
      BlockSumsQ8<T>(lines, pairs, dots);
    } else {
      BlockSumsQ4<T>(lines, pairs, offsets, dots);
    }
    const Lanes dw = WidenHalves(group + ScalesAt(kLines, b));
    for (size_t t = 0; t < T; ++t) {
      const Lanes scale = dw * SplatLanes(scales[t]);
      chains.chain[t] = FmaLanes(LanesOf(dots[t]), scale, chains.chain[t]);
    }
    if ((b + 1) % kBlocksPerSegment == 0) chains.CloseSegment();
  }
  if (blocks % kBlocksPerSegment != 0) chains.CloseSegment();
  return chains;
}

// The outputs of group g of T tokens from token `first` on; padding rows are dropped.
template <size_t T>
inline void StoreGroup(const PackedView& w, const Lanes (&sums)[T], int32_t g, int64_t first,
                       float* const* y) {
  const int32_t rows_left = w.rows - g * kRows;
  for (size_t t = 0; t < T; ++t) {
    float* out = y[first + static_cast<int64_t>(t)] + int64_t{g} * kRows;
    if (rows_left >= kRows) {
      StoreLanes(sums[t], out);
    } else {
      float rows[kRows];
      StoreLanes(sums[t], rows);
      for (int32_t r = 0; r < rows_left; ++r) out[r] = rows[r];
    }
  }
}

// Group g of the outputs of T tokens from token `first` on.
template <GgmlType kType, size_t T>
[[gnu::noinline]] void MatmulTile(const PackedView& w, const Activations& x, int32_t g,
                                  int64_t first, float* const* y) {
  const uint8_t* group = GroupOf(w, g);
  Chains<T> chains;
  if constexpr (kType == GgmlType::kQ8_0 || kType == GgmlType::kQ4_0) {
    chains = QuantGroup<kType, T>(group, x, first);
  } else {
    chains = FloatGroup<kType, T>(group, x.cols, x.values + first * x.cols);
  }
  StoreGroup(w, chains.sum, g, first, y);
}

template <GgmlType kType>
inline void MatmulOf(const PackedView& w, const Activations& x, int32_t group_begin,
                     int32_t group_end, float* const* y) {
  for (int32_t g = group_begin; g < group_end; ++g) {
    ForTiles<kTileTokens>(
        0, x.tokens, [&]<size_t T>(int64_t token) { MatmulTile<kType, T>(w, x, g, token, y); });
  }
}

inline void Matmul(const PackedView& w, const Activations& x, int32_t group_begin,
                   int32_t group_end, float* const* y) {
  switch (w.type) {
    case GgmlType::kF32:
      return MatmulOf<GgmlType::kF32>(w, x, group_begin, group_end, y);
    case GgmlType::kF16:
      return MatmulOf<GgmlType::kF16>(w, x, group_begin, group_end, y);
    case GgmlType::kBF16:
      return MatmulOf<GgmlType::kBF16>(w, x, group_begin, group_end, y);
    case GgmlType::kQ8_0:
      return MatmulOf<GgmlType::kQ8_0>(w, x, group_begin, group_end, y);
    case GgmlType::kQ4_0:
      return MatmulOf<GgmlType::kQ4_0>(w, x, group_begin, group_end, y);
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_
