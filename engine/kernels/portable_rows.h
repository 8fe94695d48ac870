// Kernels over one row: RMSNorm, RoPE, SiLU gate, residual add. Portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROWS_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROWS_H_

#include <cstdint>

#include "engine/kernels/exp.h"
#include "engine/kernels/lanes.h"

namespace lockstep::internal {
namespace {

inline void RmsNorm(const float* x, const float* weight, int32_t n, float eps, float* y) {
  float lanes[16] = {};
  const int32_t whole = n / 16 * 16;
  for (int32_t i = 0; i < whole; i += 16) {
    FmaLanes<16>(x + i, x + i, lanes, lanes);
  }
  for (int32_t i = whole; i < n; ++i) lanes[i - whole] = Fma(x[i], x[i], lanes[i - whole]);
  const float mean = SumLanes(lanes) / static_cast<float>(n);
  const float r = 1.0f / __builtin_sqrtf(mean + eps);
  for (int32_t i = 0; i < n; ++i) y[i] = (x[i] * r) * weight[i];
}

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

inline void SiluGate(const float* gate, const float* up, int32_t n, float* out) {
  for (int32_t begin = 0; begin < n; begin += 16) {
    const int32_t count = n - begin < 16 ? n - begin : 16;
    float e[16];
    for (int32_t j = 0; j < count; ++j) e[j] = -gate[begin + j];
    ExpRun(count, e);
    for (int32_t j = 0; j < count; ++j) {
      out[begin + j] = (gate[begin + j] / (1.0f + e[j])) * up[begin + j];
    }
  }
}

inline void Add(const float* x, int32_t n, float* y) {
  for (int32_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROWS_H_
