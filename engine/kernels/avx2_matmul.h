// matmul with AVX2 for quantized weights: a YMM register is 8 of a group's 16 rows. Weights and
// activations are multiplied as 16-bit pairs (vpmaddwd): a sum of two products never saturates, as
// that of vpmaddubsw can. Float weights take the portable kernel.
#ifndef LOCKSTEP_ENGINE_KERNELS_AVX2_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_AVX2_MATMUL_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "engine/kernels/fetch_ahead.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/portable_matmul.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/quant_lines.h"

namespace lockstep::internal {
namespace {

inline constexpr int32_t kHalfLine = kLineBytes / 2;  // 8 rows x 4 bytes
inline constexpr int32_t kHalves = 2;

// A block's sums begin with the bias of its codes taken off, where a whole block has one scale;
// elsewhere the codes lose it one by one.
template <GgmlType kType>
inline constexpr bool kBiasFirst = FormatOf(kType).bias > 0 && FormatOf(kType).subs() == 1;

// A segment of one token, split for vpmaddwd: of four k in a row, 0 and 2, then 1 and 3, as 16-bit
// pairs.
struct SplitSegment {
  QuantPairs block[kBlocksPerSegment];
  int32_t first_sum[kBlocksPerSegment];
  float scale[kBlocksPerSegment];
  float input_sum[kBlocksPerSegment][2];  // of each sub-block, for weights with lows
};

template <GgmlType kType>
inline void SplitBlocks(const ActivationBlock* blocks, int32_t count, SplitSegment* out) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  for (int32_t b = 0; b < count; ++b) {
    out->block[b] = SplitQuants(blocks[b].quants);
    out->first_sum[b] = kBiasFirst<kType> ? blocks[b].offset / 128 * kFormat.bias : 0;
    out->scale[b] = blocks[b].scale;
    if constexpr (kFormat.lows) {
      for (int32_t s = 0; s < kFormat.subs(); ++s) {
        out->input_sum[b][s] = InputSum<kType>(blocks[b], s);
      }
    }
  }
}

// sums += the products of one line's even and odd weights with four activations of each token.
template <size_t kTokens>
inline void AddPairs(__m256i even, __m256i odd, const SplitSegment* x, int32_t b, int32_t four,
                     __m256i (&sums)[kTokens]) {
  LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
    const QuantPairs& pairs = x[t].block[b];
    const __m256i low = _mm256_madd_epi16(even, _mm256_set1_epi32(pairs.even[four]));
    const __m256i high = _mm256_madd_epi16(odd, _mm256_set1_epi32(pairs.odd[four]));
    sums[t] = _mm256_add_epi32(sums[t], _mm256_add_epi32(low, high));
    asm("" : "+x"(sums[t]));  // else g++ puts the additions off and the products on the stack
  }
}

// The sums of one block's sub-block for 8 rows and all tokens; `lines` points at these rows in the
// first line.
template <GgmlType kType, size_t kTokens>
inline void HalfBlock(const uint8_t* lines, const SplitSegment* x, int32_t b, int32_t sub,
                      __m256i (&sums)[kTokens]) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  constexpr bool kSigned = kFormat.bias > 0 && !kBiasFirst<kType>;
  constexpr int32_t kCount = kFours / kFormat.subs();
  LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
    sums[t] = _mm256_set1_epi32(x[t].first_sum[b]);
  }
  LOCKSTEP_UNROLL for (int32_t i = 0; i < kCount; ++i) {
    const int32_t four = sub * kCount + FourInOrder<kType>(i);
    if constexpr (kSigned) {
      const auto w = __builtin_bit_cast(__m256i, LoadIntegers<kType>(lines, four));
      AddPairs<kTokens>(_mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), _mm256_srai_epi16(w, 8), x,
                        b, four, sums);
    } else {
      const auto w = __builtin_bit_cast(__m256i, LoadBiased<kType>(lines, four));
      AddPairs<kTokens>(_mm256_and_si256(w, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(w, 8), x, b,
                        four, sums);
    }
  }
}

// Sub-block `sub` of block b of the segment for 8 rows, whose lines are given.
template <GgmlType kType, size_t kTokens>
inline void AddHalfSub(const uint8_t* lines, const SplitSegment* x, int32_t b, int32_t sub,
                       __m256 dw, __m256 low, __m256 (&chain)[kTokens]) {
  __m256i sums[kTokens];
  HalfBlock<kType, kTokens>(lines, x, b, sub, sums);
  LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
    const __m256 scale = _mm256_mul_ps(dw, _mm256_set1_ps(x[t].scale[b]));
    chain[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[t]), scale, chain[t]);
    if constexpr (FormatOf(kType).lows) {
      chain[t] = _mm256_fmadd_ps(low, _mm256_set1_ps(x[t].input_sum[b][sub]), chain[t]);
    }
  }
}

// Block b of the segment, which is the group's block `at`, for 8 rows.
template <GgmlType kType, size_t kTokens>
inline void AddHalfBlock(const uint8_t* group, const SplitSegment* x, int32_t b, int32_t at,
                         int32_t half, __m256 (&chain)[kTokens]) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const uint8_t* lines = group + CodesAt(kFormat, at) + half * kHalfLine;
  const BlockScales<kType> scales = LoadScales<kType>(group, at);
  AddHalfSub<kType, kTokens>(lines, x, b, 0, scales.scale[0].part[half], scales.low[0].part[half],
                             chain);
  if constexpr (kFormat.subs() == 2) {
    AddHalfSub<kType, kTokens>(lines, x, b, 1, scales.scale[1].part[half], scales.low[1].part[half],
                               chain);
  }
}

// seg256 over blocks for a group and kTokens tokens from `token` on. `stream`: what a tile of one
// token is a part of.
template <GgmlType kType, size_t kTokens>
[[gnu::noinline]] void QuantTile256(const PackedView& w, const Activations& x, int32_t g,
                                    int64_t token, const WeightStream& stream, float* const* y) {
  const uint8_t* group = GroupOf(w, g);
  const int32_t blocks = w.cols / kBlock;
  Lanes totals[kTokens];
  for (Lanes& total : totals) total = SplatLanes(-0.0f);  // -0 + p is p, for every p
  for (int32_t begin = 0; begin < blocks; begin += kBlocksPerSegment) {
    const int32_t count = blocks - begin < kBlocksPerSegment ? blocks - begin : kBlocksPerSegment;
    SplitSegment segment[kTokens];
    for (size_t t = 0; t < kTokens; ++t) {
      const int64_t at = (token + static_cast<int64_t>(t)) * blocks + begin;
      SplitBlocks<kType>(x.blocks + at, count, &segment[t]);
    }
    LOCKSTEP_UNROLL for (int32_t half = 0; half < kHalves; ++half) {
      __m256 chain[kTokens];
      LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) chain[t] = _mm256_setzero_ps();
      for (int32_t b = 0; b < count; ++b) {
        if (kTokens == 1 && half == 0) ReadBlock<kType>(stream, group, begin + b);
        AddHalfBlock<kType, kTokens>(group, segment, b, begin + b, half, chain);
      }
      LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
        totals[t].part[half] = _mm256_add_ps(totals[t].part[half], chain[t]);
      }
    }
  }
  StoreGroup(w, totals, g, token, y);
}

template <GgmlType kType>
inline void QuantMatmul256(const PackedView& w, const Activations& x, int32_t group_begin,
                           int32_t group_end, float* const* y) {
  const WeightStream stream(w, group_end);
  for (int32_t g = group_begin; g < group_end; ++g) {
    ForTiles<kQuantTileTokens<kType>>(0, x.tokens, [&]<size_t kTokens>(int64_t token) {
      QuantTile256<kType, kTokens>(w, x, g, token, stream, y);
    });
  }
}

inline void Matmul256(const PackedView& w, const Activations& x, int32_t group_begin,
                      int32_t group_end, float* const* y) {
  if (!IsQuantized(w.type)) return MatmulFloats(w, x, group_begin, group_end, y);
  ForQuantType(w.type,
               [&]<GgmlType kType>() { QuantMatmul256<kType>(w, x, group_begin, group_end, y); });
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_AVX2_MATMUL_H_
