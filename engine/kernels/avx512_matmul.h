// matmul with AVX-512: a ZMM register is the 16 rows of a group. A tile of kGroups groups by
// kTokens tokens keeps its sums in registers, so that a line of weights is loaded once for all its
// tokens and a broadcast activation once for all its groups.
//
// A token's sum over a block is exact in 32 bits, so its order is free; the chain of fma over
// blocks (or over k, for float weights) is the one of seg256.
#ifndef LOCKSTEP_ENGINE_KERNELS_AVX512_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_AVX512_MATMUL_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "engine/kernels/fetch_ahead.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/portable_matmul.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/quant_lines.h"
#include "engine/kernels/token_tiles.h"

namespace lockstep::internal {
namespace {

// What a block of a token's activations adds to the sums of every row, of each sub-block: the bias
// of the codes taken off, and what lows are multiplied with.
struct TokenSums {
  int32_t first[2];
  float input[2];
};

// A single token's are computed once, before all groups; here is room for 32,768 columns.
inline constexpr int32_t kTokenSumBlocks = 1024;
template <GgmlType kType>
inline constexpr bool kHasTokenSums = IsQuantized(kType) &&
                                      (FormatOf(kType).lows || FormatOf(kType).bias != 128);

template <GgmlType kType>
inline void SumToken(const ActivationBlock* x, int32_t blocks, TokenSums* out) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  for (int32_t b = 0; b < blocks; ++b) {
    for (int32_t s = 0; s < kFormat.subs(); ++s) {
      out[b].first[s] = -kFormat.bias * SumOfSub<kType>(x[b], s);
      out[b].input[s] = InputSum<kType>(x[b], s);
    }
  }
}

// What only a tile of one token has.
struct OneToken {
  const TokenSums* sums = nullptr;  // of all blocks, for tiles that take them from there
  WeightStream stream;              // that the tile is a part of
};

// Where a tile reads and writes.
template <size_t kGroups>
struct TilePlace {
  const uint8_t* group[kGroups];
  int32_t cols;
  int64_t token;      // the first of its tokens
  OneToken one = {};  // of a tile of one token
};

template <size_t kGroups, size_t kTokens>
struct TileSums {
  __m512 rows[kTokens][kGroups];
};

// Four products of an unsigned weight and a signed activation added to each of 16 sums.
inline __m512i DotLine(__m512i sum, __m512i weights, __m512i quants) {
#if defined(__AVX512VNNI__)
  return _mm512_dpbusd_epi32(sum, weights, quants);
#else
  // Weights and activations as 16-bit pairs (0, 2) and (1, 3): no sum of two products saturates.
  const __m512i low = _mm512_set1_epi32(0x00ff00ff);
  const __m512i even = _mm512_madd_epi16(_mm512_and_si512(weights, low),
                                         _mm512_srai_epi16(_mm512_slli_epi16(quants, 8), 8));
  const __m512i odd =
      _mm512_madd_epi16(_mm512_srli_epi16(weights, 8), _mm512_srai_epi16(quants, 8));
  __m512i next = _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
  asm("" : "+v"(next));  // else g++ puts the additions off and the products on the stack
  return next;
#endif
}

inline __m512i BroadcastFour(const int8_t* quants) {
  int32_t four;
  __builtin_memcpy(&four, quants, sizeof four);
  return _mm512_set1_epi32(four);
}

// Where the sums of sub-block `sub` begin: with what the bias of the codes adds taken off. A half's
// sum of activations is not stored; products with the bias itself are as good.
template <GgmlType kType>
inline __m512i FirstSum(const ActivationBlock& x, int32_t sub) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  if constexpr (kFormat.bias == 0) {
    return _mm512_setzero_si512();
  } else if constexpr (kFormat.subs() == 1) {
    constexpr int kShift = 7 - __builtin_ctz(kFormat.bias);  // the offset is for a bias of 128
    return _mm512_srai_epi32(_mm512_set1_epi32(x.offset), kShift);
  } else {
    constexpr int32_t kCount = kFours / kFormat.subs();
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(kFormat.bias));
    __m512i sum = _mm512_setzero_si512();
    LOCKSTEP_UNROLL for (int32_t i = 0; i < kCount; ++i) {
      sum = DotLine(sum, bias, BroadcastFour(x.quants + 4 * (sub * kCount + i)));
    }
    return _mm512_sub_epi32(_mm512_setzero_si512(), sum);
  }
}

// What the low of sub-block `sub` is multiplied with (InputSum): for half a block, whose sum is not
// stored, by products with ones; every lane has it then.
template <GgmlType kType>
inline __m512 InputSums512(const ActivationBlock& x, int32_t sub) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  if constexpr (kFormat.subs() == 1) {
    return _mm512_set1_ps(InputSum<kType>(x, sub));
  } else {
    constexpr int32_t kCount = kFours / kFormat.subs();
    __m512i sum = _mm512_setzero_si512();
    LOCKSTEP_UNROLL for (int32_t i = 0; i < kCount; ++i) {
      sum = DotLine(sum, _mm512_set1_epi8(1), BroadcastFour(x.quants + 4 * (sub * kCount + i)));
    }
    return _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(x.scale));
  }
}

// The sub-block's sums of weights * quants for every token and group of the tile.
template <GgmlType kType, bool kSums, size_t kGroups, size_t kTokens>
inline void SubBlockSums512(const TilePlace<kGroups>& at, int32_t b, int32_t sub,
                            const ActivationBlock* const (&x)[kTokens],
                            __m512i (&sums)[kTokens][kGroups]) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  constexpr int32_t kCount = kFours / kFormat.subs();
  LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
    const __m512i first =
        kSums ? _mm512_set1_epi32(at.one.sums[b].first[sub]) : FirstSum<kType>(x[t][b], sub);
    LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) sums[t][g] = first;
  }
  const int64_t lines = CodesAt(kFormat, b);
  LOCKSTEP_UNROLL for (int32_t i = 0; i < kCount; ++i) {
    const int32_t four = sub * kCount + FourInOrder<kType>(i);
    __m512i w[kGroups];
    LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
      w[g] = __builtin_bit_cast(__m512i, LoadBiased<kType>(at.group[g] + lines, four));
    }
    LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
      const __m512i quants = BroadcastFour(x[t][b].quants + 4 * four);
      LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
        sums[t][g] = DotLine(sums[t][g], w[g], quants);
      }
    }
  }
}

// acc = fma(F32(s), scale * dx, acc) of one sub-block, and its low.
template <GgmlType kType, bool kSums, size_t kGroups, size_t kTokens>
inline void AddSubBlock512(const TilePlace<kGroups>& at, int32_t b, int32_t sub,
                           const BlockScales<kType> (&scales)[kGroups],
                           const ActivationBlock* const (&x)[kTokens],
                           __m512 (&chain)[kTokens][kGroups]) {
  __m512i sums[kTokens][kGroups];
  SubBlockSums512<kType, kSums, kGroups, kTokens>(at, b, sub, x, sums);
  LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
    const __m512 dw = scales[g].scale[sub].part[0];
    LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
      const __m512 scale = _mm512_mul_ps(dw, _mm512_set1_ps(x[t][b].scale));
      chain[t][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[t][g]), scale, chain[t][g]);
    }
  }
  if constexpr (FormatOf(kType).lows) {
    LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
      const __m512 input =
          kSums ? _mm512_set1_ps(at.one.sums[b].input[sub]) : InputSums512<kType>(x[t][b], sub);
      LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
        chain[t][g] = _mm512_fmadd_ps(scales[g].low[sub].part[0], input, chain[t][g]);
      }
    }
  }
}

// Whether a tile keeps the scales of a segment, which is a unit of the types that have such scales.
// For several tokens their registers are worth more than reading them again.
template <size_t kTokens>
inline constexpr bool kHoldsSupers = kTokens == 1;

template <GgmlType kType, bool kSums, size_t kGroups, size_t kTokens>
inline void AddBlock512(const TilePlace<kGroups>& at, int32_t b,
                        const SuperScales (&supers)[kGroups],
                        const ActivationBlock* const (&x)[kTokens],
                        __m512 (&chain)[kTokens][kGroups]) {
  BlockScales<kType> scales[kGroups];
  LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
    scales[g] = kHoldsSupers<kTokens> ? LoadScales<kType>(at.group[g], b, supers[g])
                                      : LoadScales<kType>(at.group[g], b);
  }
  AddSubBlock512<kType, kSums, kGroups, kTokens>(at, b, 0, scales, x, chain);
  if constexpr (FormatOf(kType).subs() == 2) {
    AddSubBlock512<kType, kSums, kGroups, kTokens>(at, b, 1, scales, x, chain);
  }
}

// seg256 over blocks, 8 a segment.
template <GgmlType kType, bool kSums, size_t kGroups, size_t kTokens>
inline void QuantTile(const TilePlace<kGroups>& at, const Activations& x,
                      TileSums<kGroups, kTokens>* out) {
  const int32_t blocks = at.cols / kBlock;
  const ActivationBlock* tokens[kTokens];
  LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
    tokens[t] = x.blocks + (at.token + static_cast<int64_t>(t)) * blocks;
    LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) out->rows[t][g] = _mm512_set1_ps(-0.0f);
  }
  for (int32_t begin = 0; begin < blocks; begin += kBlocksPerSegment) {
    const int32_t end = blocks - begin < kBlocksPerSegment ? blocks : begin + kBlocksPerSegment;
    __m512 chain[kTokens][kGroups];
    LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
      LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) chain[t][g] = _mm512_setzero_ps();
    }
    SuperScales supers[kGroups];
    if constexpr (kHoldsSupers<kTokens>) {
      for (size_t g = 0; g < kGroups; ++g) supers[g] = LoadSuperScales<kType>(at.group[g], begin);
    }
    for (int32_t b = begin; b < end; ++b) {
      if constexpr (kTokens == 1) ReadBlock<kType>(at.one.stream, at.group[0], b);
      AddBlock512<kType, kSums, kGroups, kTokens>(at, b, supers, tokens, chain);
    }
    LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
      LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
        out->rows[t][g] = _mm512_add_ps(out->rows[t][g], chain[t][g]);
      }
    }
  }
}

// seg256 over k.
template <GgmlType kType, size_t kGroups, size_t kTokens>
inline void FloatTile(const TilePlace<kGroups>& at, const Activations& x,
                      TileSums<kGroups, kTokens>* out) {
  const float* values[kTokens];
  LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
    values[t] = x.values + (at.token + static_cast<int64_t>(t)) * at.cols;
    LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) out->rows[t][g] = _mm512_set1_ps(-0.0f);
  }
  for (int32_t begin = 0; begin < at.cols; begin += kSegment) {
    const int32_t end = at.cols - begin < kSegment ? at.cols : begin + kSegment;
    __m512 chain[kTokens][kGroups];
    LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
      LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) chain[t][g] = _mm512_setzero_ps();
    }
    for (int32_t k = begin; k < end; ++k) {
      if constexpr (kTokens == 1) at.one.stream.Read(at.group[0] + int64_t{k} * kLineBytes, 1);
      __m512 w[kGroups];
      LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
        w[g] = LoadWeights<kType>(at.group[g] + int64_t{k} * kLineBytes).part[0];
      }
      LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
        const __m512 value = _mm512_set1_ps(values[t][k]);
        LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
          chain[t][g] = _mm512_fmadd_ps(w[g], value, chain[t][g]);
        }
      }
    }
    LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
      LOCKSTEP_UNROLL for (size_t g = 0; g < kGroups; ++g) {
        out->rows[t][g] = _mm512_add_ps(out->rows[t][g], chain[t][g]);
      }
    }
  }
}

// Groups [g, g + kGroups) of tokens [token, token + kTokens). Padding rows are never stored.
// kSums: the sums of the one token are given.
template <GgmlType kType, size_t kGroups, size_t kTokens, bool kSums = false>
[[gnu::noinline]] void Tile512(const PackedView& w, const Activations& x, int32_t group,
                               int64_t token, float* const* y, const OneToken& one = {}) {
  static_assert(!kSums || kTokens == 1);
  TilePlace<kGroups> at = {.group = {}, .cols = w.cols, .token = token, .one = one};
  for (size_t g = 0; g < kGroups; ++g) at.group[g] = GroupOf(w, group + static_cast<int32_t>(g));
  TileSums<kGroups, kTokens> sums;
  if constexpr (IsQuantized(kType)) {
    QuantTile<kType, kSums>(at, x, &sums);
  } else {
    FloatTile<kType>(at, x, &sums);
  }
  for (size_t g = 0; g < kGroups; ++g) {
    const int32_t row = (group + static_cast<int32_t>(g)) * kRows;
    const int32_t rows_left = w.rows - row;
    const auto mask = static_cast<__mmask16>(rows_left < kRows ? (1 << rows_left) - 1 : 0xffff);
    for (size_t t = 0; t < kTokens; ++t) {
      _mm512_mask_storeu_ps(y[token + static_cast<int64_t>(t)] + row, mask, sums.rows[t][g]);
    }
  }
}

// Asks for part `part` of `parts` of the bytes from `at` on.
[[gnu::always_inline]] inline void FetchPart(const uint8_t* at, int64_t bytes, int64_t part,
                                             int64_t parts) {
  const int64_t lines = bytes / kLineBytes;
  const int64_t first = lines * part / parts;
  FetchLines(reinterpret_cast<uintptr_t>(at) + static_cast<uintptr_t>(first * kLineBytes),
             lines * (part + 1) / parts - first);
}

// Tokens [begin, end). The first tile would wait for its weights; so the tiles before it ask for
// them, each for a part.
template <GgmlType kType, size_t kGroups, size_t kMost>
inline void Tokens512(const PackedView& w, const Activations& x, int32_t group, int64_t begin,
                      int64_t end, float* const* y) {
  constexpr auto kTokensMost = static_cast<int64_t>(kMost);
  const int64_t bytes = static_cast<int64_t>(kGroups) * w.group_bytes;
  const uint8_t* next = GroupOf(w, group) + bytes;
  const int64_t parts = (end - begin + kTokensMost - 1) / kTokensMost;
  int64_t part = 0;
  ForTiles<kMost>(begin, end, [&]<size_t kTokens>(int64_t token) {
    FetchPart(next, bytes, part++, parts);
    Tile512<kType, kGroups, kTokens>(w, x, group, token, y);
  });
}

// One token: group after group is one stream of memory, and two streams are slower. Groups of
// halves lie two in a stream.
template <GgmlType kType>
inline void MatVec512(const PackedView& w, const Activations& x, int32_t group_begin,
                      int32_t group_end, float* const* y) {
  OneToken one = {.stream = WeightStream(w, group_end)};
  if constexpr (kHasTokenSums<kType>) {
    const int32_t blocks = w.cols / kBlock;
    if (blocks <= kTokenSumBlocks) {
      TokenSums sums[kTokenSumBlocks];
      SumToken<kType>(x.blocks, blocks, sums);
      one.sums = sums;
      for (int32_t g = group_begin; g < group_end; ++g) {
        Tile512<kType, 1, 1, true>(w, x, g, 0, y, one);
      }
      return;
    }
  }
  constexpr bool kHalf = kType == GgmlType::kF16 || kType == GgmlType::kBF16;
  constexpr int32_t kGroups = kHalf ? 2 : 1;
  int32_t g = group_begin;
  if (kHalf && g % 2 != 0 && g < group_end) Tile512<kType, 1, 1>(w, x, g++, 0, y, one);
  for (; g + kGroups <= group_end; g += kGroups) Tile512<kType, kGroups, 1>(w, x, g, 0, y, one);
  for (; g < group_end; ++g) Tile512<kType, 1, 1>(w, x, g, 0, y, one);
}

// Tokens whose activations stay in the second-level cache while all weights pass by.
inline constexpr int64_t kTokenBlock = 160;

template <GgmlType kType>
inline void Matmul512Of(const PackedView& w, const Activations& x, int32_t group_begin,
                        int32_t group_end, float* const* y) {
  constexpr size_t kTokens = IsQuantized(kType) ? kQuantTileTokens<kType> : kTileTokens;
  // 32 registers hold two groups of so many.
  constexpr size_t kPairTokens = !IsQuantized(kType) || kTokens < 6 ? kTokens : 6;
  if (x.tokens == 1) return MatVec512<kType>(w, x, group_begin, group_end, y);
  int64_t token = 0;
  for (int64_t blocks = (x.tokens + kTokenBlock - 1) / kTokenBlock; blocks > 0; --blocks) {
    const int64_t end = token + (x.tokens - token + blocks - 1) / blocks;
    int32_t g = group_begin;
    for (; g + 2 <= group_end; g += 2) {
      Tokens512<kType, 2, kPairTokens>(w, x, g, token, end, y);
    }
    for (; g < group_end; ++g) Tokens512<kType, 1, kTokens>(w, x, g, token, end, y);
    token = end;
  }
}

inline void Matmul512(const PackedView& w, const Activations& x, int32_t group_begin,
                      int32_t group_end, float* const* y) {
  switch (w.type) {
    case GgmlType::kF32:
      return Matmul512Of<GgmlType::kF32>(w, x, group_begin, group_end, y);
    case GgmlType::kF16:
      return Matmul512Of<GgmlType::kF16>(w, x, group_begin, group_end, y);
    case GgmlType::kBF16:
      return Matmul512Of<GgmlType::kBF16>(w, x, group_begin, group_end, y);
    default:
      ForQuantType(w.type,
                   [&]<GgmlType kType>() { Matmul512Of<kType>(w, x, group_begin, group_end, y); });
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_AVX512_MATMUL_H_
