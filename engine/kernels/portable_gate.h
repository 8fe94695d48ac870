// Gates, soft-cap and residual (engine/ARITHMETIC.md 4.6) in portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_GATE_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_GATE_H_

#include <cstdint>

#include "engine/kernels/exp.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/tanh.h"

namespace lockstep::internal {
namespace {

// activation(x) * u, 16 elements at a time.
template <typename Activation>
inline void Gate(const float* gate, const float* up, int32_t n, float* out, Activation activation) {
  const auto run = [&](const float* g, const float* u, float* y) {
    StoreLanes(activation(LoadLanes(g)) * LoadLanes(u), y);
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

inline void SiluGate(const float* gate, const float* up, int32_t n, float* out) {
  Gate(gate, up, n, out,
       [](const Lanes& x) { return x / (SplatLanes(1.0f) + ExpLanes(NegateLanes(x))); });
}

// GELU by its tanh approximation, of which x * (1 + tanh(w / 2)) / 2 = x / (1 + e^-w).
inline void GeluGate(const float* gate, const float* up, int32_t n, float* out) {
  Gate(gate, up, n, out, [](const Lanes& x) {
    const Lanes one = SplatLanes(1.0f);
    const Lanes cubic = FmaLanes(SplatLanes(0x1.6e4e26p-5f), x * x, one);
    const Lanes w = (x * cubic) * SplatLanes(0x1.988454p+0f);
    return x / (one + ExpLanes(NegateLanes(w)));
  });
}

inline Lanes SoftCapLanes(const Lanes& x, const Lanes& cap) { return TanhLanes(x / cap) * cap; }

inline void SoftCap(float cap, int32_t n, float* y) {
  const Lanes caps = SplatLanes(cap);
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreLanes(SoftCapLanes(LoadLanes(y + i), caps), y + i);
  if (i == n) return;
  float rest[kLanes] = {};
  for (int32_t j = 0; i + j < n; ++j) rest[j] = y[i + j];
  StoreLanes(SoftCapLanes(LoadLanes(rest), caps), rest);
  for (int32_t j = 0; i + j < n; ++j) y[i + j] = rest[j];
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
