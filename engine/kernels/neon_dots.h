// Dot products of a quantized sub-block on NEON: 4 output rows, T tokens. Sums are exact, so both
// forms below give the same ones.
#ifndef LOCKSTEP_ENGINE_KERNELS_NEON_DOTS_H_
#define LOCKSTEP_ENGINE_KERNELS_NEON_DOTS_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels.h"
#include "engine/kernels/neon_vectors.h"
#include "engine/kernels/portable_matmul.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/quant_lines.h"

namespace lockstep::internal {
namespace {

// Runs of four k of a sub-block.
template <GgmlType kType>
inline constexpr int32_t kSubFours = kFours / FormatOf(kType).subs();

template <GgmlType kType>
inline int8x16_t LoadFour(const uint8_t* at, int32_t four) {
  return __builtin_bit_cast(int8x16_t, LoadIntegers<kType>(at, four));
}

#if defined(__ARM_FEATURE_DOTPROD)

// The run of four k at `four` of the block, and then those of every fourth lane of `quants`.
template <GgmlType kType, int kLane, size_t T>
inline void AddFour(const uint8_t* at, int32_t four, const int8x16_t (&quants)[T],
                    int32x4_t (&dots)[T]) {
  const int8x16_t w = LoadFour<kType>(at, four);
  for (size_t t = 0; t < T; ++t) dots[t] = vdotq_laneq_s32(dots[t], w, quants[t], kLane);
}

// dots[t][r] = sum over sub-block s of w[r, k] * xq[t, k]. `at`: the 4 rows' first bytes in the
// block's first line.
template <GgmlType kType, size_t T>
inline void SubBlockDots(const uint8_t* at, const ActivationBlock* const (&x)[T], int32_t s,
                         int32x4_t (&dots)[T]) {
  for (size_t t = 0; t < T; ++t) dots[t] = vdupq_n_s32(0);
  constexpr int32_t kCount = kSubFours<kType>;
  for (int32_t four = s * kCount; four < (s + 1) * kCount; four += 4) {
    int8x16_t quants[T];
    for (size_t t = 0; t < T; ++t) quants[t] = vld1q_s8(x[t]->quants + 4 * four);
    AddFour<kType, 0>(at, four, quants, dots);
    AddFour<kType, 1>(at, four + 1, quants, dots);
    AddFour<kType, 2>(at, four + 2, quants, dots);
    AddFour<kType, 3>(at, four + 3, quants, dots);
  }
}

#else

// dots[t][r] = sum over sub-block s of w[r, k] * xq[t, k]. `at`: the 4 rows' first bytes in the
// block's first line. As many products are added in 16 bits as fit.
template <GgmlType kType, size_t T>
inline void SubBlockDots(const uint8_t* at, const ActivationBlock* const (&x)[T], int32_t s,
                         int32x4_t (&dots)[T]) {
  constexpr int32_t kCount = kSubFours<kType>;
  // One product of a run in a lane here.
  constexpr int32_t kFits = 2 * FoursInShorts<kType>();
  constexpr int32_t kRun = kFits < kCount ? kFits : kCount;
  int32x4_t low[T], high[T];  // rows 0, 0, 1, 1 and 2, 2, 3, 3
  for (size_t t = 0; t < T; ++t) low[t] = high[t] = vdupq_n_s32(0);
  for (int32_t begin = s * kCount; begin < (s + 1) * kCount; begin += kRun) {
    int16x8_t low_products[T], high_products[T];
    for (size_t t = 0; t < T; ++t) low_products[t] = high_products[t] = vdupq_n_s16(0);
    for (int32_t four = begin; four < begin + kRun; ++four) {
      const int8x16_t w = LoadFour<kType>(at, four);
      for (size_t t = 0; t < T; ++t) {
        const int8x16_t quants = SplatFour(x[t]->quants + 4 * four);
        low_products[t] = vmlal_s8(low_products[t], vget_low_s8(w), vget_low_s8(quants));
        high_products[t] = vmlal_high_s8(high_products[t], w, quants);
      }
    }
    for (size_t t = 0; t < T; ++t) {
      low[t] = vpadalq_s16(low[t], low_products[t]);
      high[t] = vpadalq_s16(high[t], high_products[t]);
    }
  }
  for (size_t t = 0; t < T; ++t) dots[t] = vpaddq_s32(low[t], high[t]);
}

#endif

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_NEON_DOTS_H_
