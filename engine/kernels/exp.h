// e^x in binary32, 16 lanes at once. Internal linkage, for the reasons of bits.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_EXP_H_
#define LOCKSTEP_ENGINE_KERNELS_EXP_H_

#include <cstdint>

#include "engine/kernels/lanes.h"

namespace lockstep::internal {
namespace {

inline constexpr float kExpHigh = 0x1.62e42ep+6f;  // 0x42b17217: the last with a finite result
inline constexpr float kExpLow = -0x1.9fe368p+6f;  // 0xc2cff1b4: the last with a result above 0

// 2^n for -126 <= n <= 127.
inline Floats PowersOfTwo(Ints n) { return __builtin_bit_cast(Floats, (n + 127) << 23); }

// e^x: n = round(x / ln 2), r = x - n ln 2 in two parts, a polynomial in r, times 2^n in two
// factors, of which only the second can round.
inline Lanes ExpLanes(const Lanes& x) {
  Lanes z;  // within the limits; a NaN becomes some number
  for (int i = 0; i < kParts; ++i) {
    const Floats v = x.part[i] < kExpHigh ? x.part[i] : kExpHigh - Floats{};
    z.part[i] = v > kExpLow ? v : kExpLow - Floats{};
  }
  const Lanes magic = SplatLanes(kRoundMagic);
  const Lanes shifted = FmaLanes(z, SplatLanes(0x1.715476p+0f), magic);  // 1 / ln 2
  const Lanes n = shifted - magic;
  Lanes r = FmaLanes(n, SplatLanes(-0x1.62e4p-1f), z);  // ln 2, upper 15 bits: exact
  r = FmaLanes(n, SplatLanes(-0x1.7f7d1cp-20f), r);     // ln 2, the rest
  Lanes p = SplatLanes(0x1.6a24p-10f);
  p = FmaLanes(p, r, SplatLanes(0x1.123a02p-7f));
  p = FmaLanes(p, r, SplatLanes(0x1.5558f2p-5f));
  p = FmaLanes(p, r, SplatLanes(0x1.555492p-3f));
  p = FmaLanes(p, r, SplatLanes(0x1.fffffcp-2f));
  p = FmaLanes(p, r, SplatLanes(1.0f));
  p = FmaLanes(p, r, SplatLanes(1.0f));
  Lanes y;
  for (int i = 0; i < kParts; ++i) {
    const Floats v = x.part[i];
    const Ints power =
        __builtin_bit_cast(Ints, shifted.part[i]) - static_cast<int32_t>(BitsOf(kRoundMagic));
    const Ints half = power >> 1;
    const Floats scaled = (p.part[i] * PowersOfTwo(half)) * PowersOfTwo(power - half);
    const Floats capped = v > kExpHigh ? __builtin_inff() - Floats{} : scaled;
    const Floats result = v < kExpLow ? Floats{} : capped;
    y.part[i] = v == v ? result : v;
  }
  return y;
}

inline float Exp(float x) { return ExpLanes(SplatLanes(x)).part[0][0]; }

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_EXP_H_
