// RoPE (engine/ARITHMETIC.md 4.4) in portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROPE_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROPE_H_

#include <cstdint>

#include "engine/kernels/bits.h"

namespace lockstep::internal {
namespace {

inline void RopeInterleaved(float* x, int32_t num_heads, int32_t head_dim, int32_t rope_dim,
                            const float* cos, const float* sin) {
  for (int32_t h = 0; h < num_heads; ++h) {
    float* head = x + int64_t{h} * head_dim;
    for (int32_t i = 0; i < rope_dim / 2; ++i) {
      const float a = head[2 * i];
      const float b = head[2 * i + 1];
      head[2 * i] = Fma(a, cos[i], -(b * sin[i]));
      head[2 * i + 1] = Fma(a, sin[i], b * cos[i]);
    }
  }
}

inline void RopeHalves(float* x, int32_t num_heads, int32_t head_dim, int32_t rope_dim,
                       const float* cos, const float* sin) {
  const int32_t half = rope_dim / 2;
  for (int32_t h = 0; h < num_heads; ++h) {
    float* head = x + int64_t{h} * head_dim;
    for (int32_t i = 0; i < half; ++i) {
      const float a = head[i];
      const float b = head[half + i];
      head[i] = Fma(a, cos[i], -(b * sin[i]));
      head[half + i] = Fma(a, sin[i], b * cos[i]);
    }
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROPE_H_
