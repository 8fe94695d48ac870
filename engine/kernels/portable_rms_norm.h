// RMSNorm (engine/ARITHMETIC.md 4.3) in portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_RMS_NORM_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_RMS_NORM_H_

#include <cstdint>

#include "engine/kernels/lanes.h"

namespace lockstep::internal {
namespace {

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

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_RMS_NORM_H_
