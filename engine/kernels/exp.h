// e^x in binary32, on N lanes at once. Internal linkage, for the reasons of lanes.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_EXP_H_
#define LOCKSTEP_ENGINE_KERNELS_EXP_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/lanes.h"

namespace lockstep::internal {
namespace {

inline constexpr float kExpHigh = 0x1.62e42ep+6f;  // 0x42b17217: the last with a finite result
inline constexpr float kExpLow = -0x1.9fe368p+6f;  // 0xc2cff1b4: the last with a result above 0

// x[j] = fma(x[j], factor[j], term)
template <size_t N>
inline void HornerStep(const float* factor, float term, float* x) {
  float terms[N];
  for (size_t j = 0; j < N; ++j) terms[j] = term;
  FmaLanes<N>(x, factor, terms, x);
}

// x[j] = e^x[j]: n = round(x / ln 2), r = x - n ln 2 in two parts, a polynomial in r, times 2^n in
// two factors, of which only the second can round. Branch-free, so that it vectorises.
template <size_t N>
inline void ExpLanes(float* x) {
  float clamped[N], shifted[N], n[N], r[N], p[N];
  for (size_t j = 0; j < N; ++j) {
    const float below = x[j] < kExpHigh ? x[j] : kExpHigh;
    clamped[j] = below > kExpLow ? below : kExpLow;
    shifted[j] = kRoundMagic;
    r[j] = clamped[j];
    p[j] = 0x1.6a24p-10f;
  }
  FmaLanes<N>(clamped, 0x1.715476p+0f, shifted);  // 1 / ln 2
  for (size_t j = 0; j < N; ++j) n[j] = shifted[j] - kRoundMagic;
  FmaLanes<N>(n, -0x1.62e4p-1f, r);     // ln 2, upper 15 bits: exact
  FmaLanes<N>(n, -0x1.7f7d1cp-20f, r);  // ln 2, the rest
  HornerStep<N>(r, 0x1.123a02p-7f, p);
  HornerStep<N>(r, 0x1.5558f2p-5f, p);
  HornerStep<N>(r, 0x1.555492p-3f, p);
  HornerStep<N>(r, 0x1.fffffcp-2f, p);
  HornerStep<N>(r, 1.0f, p);
  HornerStep<N>(r, 1.0f, p);
  for (size_t j = 0; j < N; ++j) {
    const auto power = static_cast<int32_t>(BitsOf(shifted[j]) - BitsOf(kRoundMagic));
    const int32_t half = power >> 1;
    const float scale_a = FloatOf(static_cast<uint32_t>(half + 127) << 23);
    const float scale_b = FloatOf(static_cast<uint32_t>(power - half + 127) << 23);
    const float y = (p[j] * scale_a) * scale_b;
    const float capped = x[j] > kExpHigh ? __builtin_inff() : y;
    const float result = x[j] < kExpLow ? 0.0f : capped;
    x[j] = x[j] == x[j] ? result : x[j];
  }
}

inline float Exp(float x) {
  ExpLanes<1>(&x);
  return x;
}

// x[j] = e^x[j] for count <= 16 elements.
inline void ExpRun(int32_t count, float* x) {
  if (count == 16) return ExpLanes<16>(x);
  for (int32_t j = 0; j < count; ++j) ExpLanes<1>(x + j);
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_EXP_H_
