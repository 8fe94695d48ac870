// matmul with AVX2 for quantized weights: a YMM register is 8 of a group's 16 rows. Weights and
// activations are multiplied as 16-bit pairs (vpmaddwd): a sum of two products never saturates, as
// that of vpmaddubsw can. Float weights take the portable kernel.
#ifndef LOCKSTEP_ENGINE_KERNELS_AVX2_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_AVX2_MATMUL_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/portable_matmul.h"

namespace lockstep::internal {
namespace {

inline constexpr int32_t kHalfLine = kLineBytes / 2;  // 8 rows x 4 bytes
inline constexpr int32_t kHalves = 2;

// A segment of one token, split for vpmaddwd: of four k in a row, 0 and 2, then 1 and 3, as 16-bit
// pairs.
struct SplitSegment {
  QuantPairs block[kBlocksPerSegment];
  int32_t offset[kBlocksPerSegment];  // for weights + 128, or + 8
  float scale[kBlocksPerSegment];
};

inline void SplitBlocks(const ActivationBlock* blocks, int32_t count, bool q8, SplitSegment* out) {
  for (int32_t b = 0; b < count; ++b) {
    out->block[b] = SplitQuants(blocks[b].quants);
    out->offset[b] = q8 ? blocks[b].offset : blocks[b].offset / 16;
    out->scale[b] = blocks[b].scale;
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

// The sums of one block for 8 rows and all tokens; `lines` points at these rows in the first line.
template <bool kQ8, size_t kTokens>
inline void HalfBlock(const uint8_t* lines, const SplitSegment* x, int32_t b,
                      __m256i (&sums)[kTokens]) {
  const __m256i byte = _mm256_set1_epi16(0xff), nibble = _mm256_set1_epi16(0x0f);
  LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
    sums[t] = _mm256_set1_epi32(x[t].offset[b]);
  }
  LOCKSTEP_UNROLL for (int32_t i = 0; i < (kQ8 ? kQ8Lines : kQ4Lines); ++i) {
    const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(lines + i * kLineBytes));
    if constexpr (kQ8) {
      AddPairs<kTokens>(_mm256_and_si256(w, byte), _mm256_srli_epi16(w, 8), x, b, i, sums);
    } else {
      AddPairs<kTokens>(_mm256_and_si256(w, nibble),
                        _mm256_and_si256(_mm256_srli_epi16(w, 8), nibble), x, b, i, sums);
      AddPairs<kTokens>(_mm256_and_si256(_mm256_srli_epi16(w, 4), nibble), _mm256_srli_epi16(w, 12),
                        x, b, i + kQ4Lines, sums);
    }
  }
}

// seg256 over blocks for a group and kTokens tokens from `token` on.
template <GgmlType kType, size_t kTokens>
[[gnu::noinline]] void QuantTile256(const PackedView& w, const Activations& x, int32_t g,
                                    int64_t token, float* const* y) {
  constexpr bool kQ8 = kType == GgmlType::kQ8_0;
  constexpr int32_t kLines = kQ8 ? kQ8Lines : kQ4Lines;
  const uint8_t* group = GroupOf(w, g);
  const int32_t blocks = w.cols / kBlock;
  Lanes totals[kTokens];
  for (Lanes& total : totals) total = SplatLanes(-0.0f);  // -0 + p is p, for every p
  for (int32_t begin = 0; begin < blocks; begin += kBlocksPerSegment) {
    const int32_t count = blocks - begin < kBlocksPerSegment ? blocks - begin : kBlocksPerSegment;
    SplitSegment segment[kTokens];
    for (size_t t = 0; t < kTokens; ++t) {
      const int64_t at = (token + static_cast<int64_t>(t)) * blocks + begin;
      SplitBlocks(x.blocks + at, count, kQ8, &segment[t]);
    }
    for (int32_t half = 0; half < kHalves; ++half) {
      __m256 chain[kTokens];
      LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) chain[t] = _mm256_setzero_ps();
      for (int32_t b = 0; b < count; ++b) {
        __m256i sums[kTokens];
        HalfBlock<kQ8, kTokens>(group + LinesAt(kLines, begin + b) + half * kHalfLine, segment, b,
                                sums);
        const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(
            group + ScalesAt(kLines, begin + b) + half * (kScaleBytes / 2)));
        const __m256 dw = _mm256_cvtph_ps(halves);
        LOCKSTEP_UNROLL for (size_t t = 0; t < kTokens; ++t) {
          const __m256 scale = _mm256_mul_ps(dw, _mm256_set1_ps(segment[t].scale[b]));
          chain[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[t]), scale, chain[t]);
        }
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
  for (int32_t g = group_begin; g < group_end; ++g) {
    ForTiles<kTileTokens>(0, x.tokens, [&]<size_t kTokens>(int64_t token) {
      QuantTile256<kType, kTokens>(w, x, g, token, y);
    });
  }
}

inline void Matmul256(const PackedView& w, const Activations& x, int32_t group_begin,
                      int32_t group_end, float* const* y) {
  switch (w.type) {
    case GgmlType::kQ8_0:
      return QuantMatmul256<GgmlType::kQ8_0>(w, x, group_begin, group_end, y);
    case GgmlType::kQ4_0:
      return QuantMatmul256<GgmlType::kQ4_0>(w, x, group_begin, group_end, y);
    default:
      return Matmul(w, x, group_begin, group_end, y);
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_AVX2_MATMUL_H_
