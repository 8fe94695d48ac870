// Dot products of a Q4_0 block on NEON: 4 output rows, T tokens.
#ifndef LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_Q4_H_
#define LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_Q4_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels.h"
#include "engine/kernels/neon_vectors.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

// 4 rows of a line, 4 k each, with their bias of 8: k = 4 i + j and k = 16 + 4 i + j.
struct NibblesQ4 {
  int8x16_t lower;
  int8x16_t upper;
};

inline NibblesQ4 LoadQ4(const uint8_t* at) {
  const uint8x16_t pairs = vld1q_u8(at);
  return {.lower = vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(15))),
          .upper = vreinterpretq_s8_u8(vshrq_n_u8(pairs, 4))};
}

// Minus what the bias of 8 adds to a block's dot products: the offset is for a bias of 128.
inline int32x4_t BiasQ4(int32_t offset) { return vdupq_n_s32(offset / 16); }

#if defined(__ARM_FEATURE_DOTPROD)

template <int kLine, size_t T>
inline void AddLineQ4(const uint8_t* at, const int8x16_t (&lower)[T], const int8x16_t (&upper)[T],
                      int32x4_t (&dots)[T]) {
  const NibblesQ4 w = LoadQ4(at + kLine * kLineBytes);
  for (size_t t = 0; t < T; ++t) {
    dots[t] = vdotq_laneq_s32(dots[t], w.lower, lower[t], kLine);
    dots[t] = vdotq_laneq_s32(dots[t], w.upper, upper[t], kLine);
  }
}

// dots[t][r] = sum over the block's 32 k of w[r, k] * xq[t, k]. `at`: the 4 rows' first bytes.
template <size_t T>
inline void BlockDotsQ4(const uint8_t* at, const ActivationBlock* const (&x)[T],
                        int32x4_t (&dots)[T]) {
  int8x16_t lower[T], upper[T];
  for (size_t t = 0; t < T; ++t) {
    lower[t] = vld1q_s8(x[t]->quants);
    upper[t] = vld1q_s8(x[t]->quants + kBlock / 2);
    dots[t] = BiasQ4(x[t]->offset);
  }
  AddLineQ4<0>(at, lower, upper, dots);
  AddLineQ4<1>(at, lower, upper, dots);
  AddLineQ4<2>(at, lower, upper, dots);
  AddLineQ4<3>(at, lower, upper, dots);
}

#else

// dots[t][r] = sum over the block's 32 k of w[r, k] * xq[t, k]. `at`: the 4 rows' first bytes.
// The 8 products in a 16-bit lane are at most 8 * 15 * 127 = 15240.
template <size_t T>
inline void BlockDotsQ4(const uint8_t* at, const ActivationBlock* const (&x)[T],
                        int32x4_t (&dots)[T]) {
  int16x8_t low[T], high[T];  // rows 0, 0, 0, 0, 1, 1, 1, 1 and 2, 2, 2, 2, 3, 3, 3, 3
  for (size_t t = 0; t < T; ++t) low[t] = high[t] = vdupq_n_s16(0);
  for (int i = 0; i < kQ4Lines; ++i) {
    const NibblesQ4 w = LoadQ4(at + i * kLineBytes);
    for (size_t t = 0; t < T; ++t) {
      const int8x16_t lower = SplatFour(x[t]->quants + 4 * i);
      const int8x16_t upper = SplatFour(x[t]->quants + kBlock / 2 + 4 * i);
      low[t] = vmlal_s8(low[t], vget_low_s8(w.lower), vget_low_s8(lower));
      low[t] = vmlal_s8(low[t], vget_low_s8(w.upper), vget_low_s8(upper));
      high[t] = vmlal_high_s8(high[t], w.lower, lower);
      high[t] = vmlal_high_s8(high[t], w.upper, upper);
    }
  }
  for (size_t t = 0; t < T; ++t) {
    const int32x4_t sums = vpaddq_s32(vpaddlq_s16(low[t]), vpaddlq_s16(high[t]));
    dots[t] = vaddq_s32(sums, BiasQ4(x[t]->offset));
  }
}

#endif

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_Q4_H_
