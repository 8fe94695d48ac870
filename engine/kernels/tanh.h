// tanh in binary32, 16 lanes at once. Internal linkage, for the reasons of bits.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_TANH_H_
#define LOCKSTEP_ENGINE_KERNELS_TANH_H_

#include <cstdint>

#include "engine/kernels/exp.h"

namespace lockstep::internal {
namespace {

inline constexpr float kTanhSplit = 0x1.4p-1f;

// Of a = |x|: below the split a polynomial in a^2, which keeps small results exact; above it
// 1 - 2 / (e^2a + 1). Then the sign of x.
inline Lanes TanhLanes(const Lanes& x) {
  Lanes a;
  for (int i = 0; i < kParts; ++i) {
    a.part[i] =
        __builtin_bit_cast(Floats, __builtin_bit_cast(Ints, x.part[i]) & INT32_C(0x7fffffff));
  }
  const Lanes z = a * a;
  Lanes p = SplatLanes(-0x1.75e1dp-8f);
  p = FmaLanes(p, z, SplatLanes(0x1.52269ap-6f));
  p = FmaLanes(p, z, SplatLanes(-0x1.b83c5ap-5f));
  p = FmaLanes(p, z, SplatLanes(0x1.110726p-3f));
  p = FmaLanes(p, z, SplatLanes(-0x1.555532p-2f));
  const Lanes small = FmaLanes(a * z, p, a);
  const Lanes one = SplatLanes(1.0f);
  const Lanes large = one - SplatLanes(2.0f) / (ExpLanes(a + a) + one);
  Lanes y;
  for (int i = 0; i < kParts; ++i) {
    const Floats magnitude = a.part[i] < kTanhSplit ? small.part[i] : large.part[i];
    const Ints sign = __builtin_bit_cast(Ints, x.part[i]) & INT32_MIN;
    y.part[i] = __builtin_bit_cast(Floats, __builtin_bit_cast(Ints, magnitude) | sign);
  }
  return y;
}

inline float Tanh(float x) { return TanhLanes(SplatLanes(x)).part[0][0]; }

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_TANH_H_
