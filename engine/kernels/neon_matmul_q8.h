// Dot products of a Q8_0 block on NEON: 4 output rows, T tokens.
#ifndef LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_Q8_H_
#define LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_Q8_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels.h"
#include "engine/kernels/neon_vectors.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

// 4 rows of a line, 4 k each, without the bias of 128.
inline int8x16_t LoadQ8(const uint8_t* at) {
  return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at), vdupq_n_u8(0x80)));
}

#if defined(__ARM_FEATURE_DOTPROD)

// The line whose 4 k are quants 4 kFour to 4 kFour + 3.
template <int kFour, size_t T>
inline void AddLineQ8(const uint8_t* at, const int8x16_t (&quants)[T], int32x4_t (&dots)[T]) {
  const int8x16_t w = LoadQ8(at);
  for (size_t t = 0; t < T; ++t) dots[t] = vdotq_laneq_s32(dots[t], w, quants[t], kFour);
}

// dots[t][r] = sum over the block's 32 k of w[r, k] * xq[t, k]. `at`: the 4 rows' first bytes.
template <size_t T>
inline void BlockDotsQ8(const uint8_t* at, const ActivationBlock* const (&x)[T],
                        int32x4_t (&dots)[T]) {
  for (size_t t = 0; t < T; ++t) dots[t] = vdupq_n_s32(0);
  for (int half = 0; half < 2; ++half) {
    int8x16_t quants[T];
    for (size_t t = 0; t < T; ++t) quants[t] = vld1q_s8(x[t]->quants + half * (kBlock / 2));
    AddLineQ8<0>(at + 0 * kLineBytes, quants, dots);
    AddLineQ8<1>(at + 1 * kLineBytes, quants, dots);
    AddLineQ8<2>(at + 2 * kLineBytes, quants, dots);
    AddLineQ8<3>(at + 3 * kLineBytes, quants, dots);
    at += kQ8Lines / 2 * kLineBytes;
  }
}

#else

// dots[t][r] = sum over the block's 32 k of w[r, k] * xq[t, k]. `at`: the 4 rows' first bytes.
// A product is at most 128 * 127, so two of them fit 16 bits; pairs of those are added in 32.
template <size_t T>
inline void BlockDotsQ8(const uint8_t* at, const ActivationBlock* const (&x)[T],
                        int32x4_t (&dots)[T]) {
  int32x4_t low[T], high[T];  // rows 0, 0, 1, 1 and 2, 2, 3, 3
  for (size_t t = 0; t < T; ++t) low[t] = high[t] = vdupq_n_s32(0);
  for (int i = 0; i < kQ8Lines; i += 2) {
    const int8x16_t w0 = LoadQ8(at + i * kLineBytes);
    const int8x16_t w1 = LoadQ8(at + (i + 1) * kLineBytes);
    for (size_t t = 0; t < T; ++t) {
      const int8x16_t x0 = SplatFour(x[t]->quants + 4 * i);
      const int8x16_t x1 = SplatFour(x[t]->quants + 4 * (i + 1));
      int16x8_t products = vmull_s8(vget_low_s8(w0), vget_low_s8(x0));
      low[t] = vpadalq_s16(low[t], vmlal_s8(products, vget_low_s8(w1), vget_low_s8(x1)));
      products = vmull_high_s8(w0, x0);
      high[t] = vpadalq_s16(high[t], vmlal_high_s8(products, w1, x1));
    }
  }
  for (size_t t = 0; t < T; ++t) dots[t] = vpaddq_s32(low[t], high[t]);
}

#endif

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_Q8_H_
