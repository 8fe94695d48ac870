// matmul in portable C++: the 16 rows of a group are the lanes of lanes.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/fetch_ahead.h"
#include "engine/kernels/halves.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/quant_lines.h"
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

// seg256 over k for 16 rows and T tokens; values: [T, cols]. `stream`: what it is a part of, if T
// is 1.
template <GgmlType kType, size_t T>
inline Chains<T> FloatGroup(const uint8_t* group, int32_t cols, const float* values,
                            const WeightStream& stream) {
  const float* rows[T];
  for (size_t t = 0; t < T; ++t) rows[t] = values + t * static_cast<size_t>(cols);
  Chains<T> chains;
  for (int32_t begin = 0; begin < cols; begin += kSegment) {
    const int32_t end = cols - begin < kSegment ? cols : begin + kSegment;
    for (int32_t k = begin; k < end; ++k) {
      if (T == 1) stream.Read(group + int64_t{k} * kLineBytes, 1);
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

// How many runs of four k may be added up in 16 bits, two products of each in a lane.
template <GgmlType kType>
constexpr int32_t FoursInShorts() {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const int32_t codes = kFormat.table ? 256 : 1 << (kFormat.low_bits + kFormat.high_bits);
  const int32_t largest = kFormat.bias > codes / 2 - 1 ? kFormat.bias : codes - 1 - kFormat.bias;
  return 32767 / (2 * 127 * largest);
}

// sums[t][r] = sum over sub-block s of w[r, k] * xq[t, k], exact.
template <GgmlType kType, size_t T>
inline void SubBlockSums(const uint8_t* lines, const QuantPairs* x, int32_t s,
                         int32_t (&sums)[T][kRows]) {
  constexpr int32_t kCount = FormatOf(kType).sub_block / 4;
  constexpr int32_t kRun = FoursInShorts<kType>() < kCount ? FoursInShorts<kType>() : kCount;
  for (int part = 0; part < kLineBytes / kVectorBytes; ++part) {
    Ints low[T] = {};
    Ints high[T] = {};
    for (int32_t begin = s * kCount; begin < (s + 1) * kCount; begin += kRun) {
      Shorts products[T] = {};
      for (int32_t four = begin; four < begin + kRun; ++four) {
        const auto w =
            __builtin_bit_cast(Shorts, LoadIntegers<kType>(lines + part * kVectorBytes, four));
        const Shorts even = LowBytes(w);
        const Shorts odd = HighBytes(w);
        for (size_t t = 0; t < T; ++t) {
          products[t] += even * Splat(x[t].even[four]) + odd * Splat(x[t].odd[four]);
        }
      }
      for (size_t t = 0; t < T; ++t) {
        const auto pairs = __builtin_bit_cast(Ints, products[t]);
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

// seg256 over k, 8 blocks a segment, for 16 rows and T tokens from token `first` on.
template <GgmlType kType, size_t T>
inline Chains<T> QuantGroup(const uint8_t* group, const Activations& x, int64_t first) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const int32_t blocks = x.cols / kBlock;
  Chains<T> chains;
  for (int32_t b = 0; b < blocks; ++b) {
    const uint8_t* lines = group + CodesAt(kFormat, b);
    const BlockScales<kType> scales = LoadScales<kType>(group, b);
    const ActivationBlock* at[T];
    QuantPairs pairs[T];
    for (size_t t = 0; t < T; ++t) {
      at[t] = x.blocks + (first + static_cast<int64_t>(t)) * blocks + b;
      pairs[t] = SplitQuants(at[t]->quants);
    }
    for (int32_t s = 0; s < kFormat.subs(); ++s) {
      int32_t dots[T][kRows];
      SubBlockSums<kType, T>(lines, pairs, s, dots);
      for (size_t t = 0; t < T; ++t) {
        Lanes& chain = chains.chain[t];
        chain = FmaLanes(LanesOf(dots[t]), scales.scale[s] * SplatLanes(at[t]->scale), chain);
        if constexpr (kFormat.lows) {
          chain = FmaLanes(scales.low[s], SplatLanes(InputSum<kType>(*at[t], s)), chain);
        }
      }
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
                                  int64_t first, const WeightStream& stream, float* const* y) {
  const uint8_t* group = GroupOf(w, g);
  Chains<T> chains;
  if constexpr (IsQuantized(kType)) {
    chains = QuantGroup<kType, T>(group, x, first);
  } else {
    chains = FloatGroup<kType, T>(group, x.cols, x.values + first * x.cols, stream);
  }
  StoreGroup(w, chains.sum, g, first, y);
}

template <GgmlType kType>
inline void MatmulOf(const PackedView& w, const Activations& x, int32_t group_begin,
                     int32_t group_end, float* const* y) {
  const WeightStream stream(w, group_end);
  for (int32_t g = group_begin; g < group_end; ++g) {
    ForTiles<kTileTokens>(0, x.tokens, [&]<size_t T>(int64_t token) {
      MatmulTile<kType, T>(w, x, g, token, stream, y);
    });
  }
}

// REQUIRES: weights of a float type.
inline void MatmulFloats(const PackedView& w, const Activations& x, int32_t group_begin,
                         int32_t group_end, float* const* y) {
  switch (w.type) {
    case GgmlType::kF32:
      return MatmulOf<GgmlType::kF32>(w, x, group_begin, group_end, y);
    case GgmlType::kF16:
      return MatmulOf<GgmlType::kF16>(w, x, group_begin, group_end, y);
    default:
      return MatmulOf<GgmlType::kBF16>(w, x, group_begin, group_end, y);
  }
}

inline void Matmul(const PackedView& w, const Activations& x, int32_t group_begin,
                   int32_t group_end, float* const* y) {
  if (!IsQuantized(w.type)) return MatmulFloats(w, x, group_begin, group_end, y);
  ForQuantType(w.type, [&]<GgmlType kType>() { MatmulOf<kType>(w, x, group_begin, group_end, y); });
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_
