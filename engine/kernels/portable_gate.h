// SiLU gate and residual (engine/ARITHMETIC.md 4.6) in portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_GATE_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_GATE_H_

#include <cstdint>

#include "engine/kernels/exp.h"
#include "engine/kernels/lanes.h"

namespace lockstep::internal {
namespace {

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

inline void Scale(float factor, int32_t n, float* y) {
  for (int32_t i = 0; i < n; ++i) y[i] *= factor;
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_GATE_H_
