// Kernels over one row: activation quantization, RMSNorm, RoPE, SiLU gate, residual add. Portable
// C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROWS_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROWS_H_

#include <cstdint>

#include "engine/kernels/exp.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

inline void QuantizeActivations(const float* x, int32_t cols, ActivationBlock* blocks) {
  for (int32_t b = 0; b < cols / kBlock; ++b) {
    const float* in = x + int64_t{b} * kBlock;
    ActivationBlock& out = blocks[b];
    uint32_t top = 0;  // bits of max |x|: ordered as the values are, infinity and NaN last
    for (int i = 0; i < kBlock; ++i) {
      const uint32_t magnitude = BitsOf(in[i]) & 0x7fffffffu;
      top = magnitude > top ? magnitude : top;
    }
    const float amax = FloatOf(top);
    const float inverse = 127.0f / amax;  // infinite for amax 0 and for amax <= 127 * 2^-128
    const bool finite = top < 0x7f800000u;
    const bool regular = finite && inverse <= 0x1.fffffep+127f;
    const float id = regular ? inverse : 0.0f;
    int32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float value = finite ? in[i] : 0.0f;
      const float rounded = value * id + kRoundMagic;
      const auto q = static_cast<int32_t>(BitsOf(rounded) - BitsOf(kRoundMagic));
      out.quants[i] = static_cast<int8_t>(q);
      sum += q;
    }
    out.scale = regular ? amax / 127.0f : finite ? 0.0f : __builtin_nanf("");
    out.offset = -128 * sum;
  }
}

inline void RmsNorm(const float* x, const float* weight, int32_t n, float eps, float* y) {
  const int32_t whole = n / kLanes * kLanes;
  Lanes acc = SplatLanes(0.0f);
  for (int32_t i = 0; i < whole; i += kLanes) {
    const Lanes v = LoadLanes(x + i);
    acc = FmaLanes(v, v, acc);
  }
  if (whole < n) acc = FmaFirstLanes(x + whole, x + whole, n - whole, acc);
  const float mean = SumLanes(acc) / static_cast<float>(n);
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
  const auto run = [](const float* g, const float* u, float* y) {
    const Lanes x = LoadLanes(g);
    const Lanes e = ExpLanes(NegateLanes(x));
    StoreLanes((x / (SplatLanes(1.0f) + e)) * LoadLanes(u), y);
  };
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) run(gate + i, up + i, out + i);
  if (i == n) return;
  float g[kLanes] = {}, u[kLanes] = {}, y[kLanes];
  for (int32_t j = 0; i + j < n; ++j) {
    g[j] = gate[i + j];
    u[j] = up[i + j];
  }
  run(g, u, y);
  for (int32_t j = 0; i + j < n; ++j) out[i + j] = y[j];
}

inline void Add(const float* x, int32_t n, float* y) {
  for (int32_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_ROWS_H_
