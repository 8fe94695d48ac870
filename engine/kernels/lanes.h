// The basic operations of engine/ARITHMETIC.md, shared by every translation unit that computes.
//
// Everything here has internal linkage and uses nothing from the standard library: the file is
// compiled once per instruction set, and an inline function with external linkage would let the
// linker put AVX code into the baseline. For the same reason: __builtin_bit_cast, no std::byte.
#ifndef LOCKSTEP_ENGINE_KERNELS_LANES_H_
#define LOCKSTEP_ENGINE_KERNELS_LANES_H_

#include <cstdint>

#if defined(__FAST_MATH__)
#error "engine/ARITHMETIC.md forbids -ffast-math"
#endif

namespace lockstep::internal {
namespace {

inline uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }
inline uint64_t BitsOf(double value) { return __builtin_bit_cast(uint64_t, value); }
inline float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline double DoubleOf(uint64_t bits) { return __builtin_bit_cast(double, bits); }

// The sum of a and b rounded to odd: exact sums as they are, others to the neighbour whose last
// bit is 1. Rounding that once more to at most 51 bits is as good as rounding the exact sum
// (Boldo, Melquiond, "Emulation of a FMA and Correctly Rounded Sums", IEEE TC 57(4), 2008).
inline double AddRoundToOdd(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);  // exact; NaN when sum is not finite
  const uint64_t bits = BitsOf(sum);
  const uint64_t inexact = (error > 0) | (error < 0);
  const uint64_t step = inexact & ~bits & 1u;            // 1: the last bit has to change
  const uint64_t shrink = (bits ^ BitsOf(error)) >> 63;  // 1: towards zero
  return DoubleOf(bits + step - 2 * (step & shrink));
}

// a * b + c rounded once to binary32 (IEEE 754 fusedMultiplyAdd). Without hardware: the product of
// two floats is exact in double, the sum is rounded to odd, the narrowing rounds once.
inline float Fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return static_cast<float>(AddRoundToOdd(double{a} * double{b}, double{c}));
#endif
}

// binary16 to binary32, exact; a NaN stays a NaN.
inline float WidenF16(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + (112u << 23);  // exponent bias 15 becomes 127
  const uint32_t special = normal + (112u << 23);            // infinity and NaN: exponent 255
  const uint32_t small = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t bits = magnitude >= 0x7c00u ? special : magnitude < 0x400u ? small : normal;
  return FloatOf(bits | sign);
}

// bfloat16 to binary32, exact.
inline float WidenBF16(uint16_t half) { return FloatOf(static_cast<uint32_t>(half) << 16); }

// The last steps of tree16: 16 lanes to one sum.
inline float SumLanes(float* lanes) {
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

// Adding 1.5 * 2^23 leaves an integer in the low bits, rounded half to even, for |x| < 2^22.
inline constexpr float kRoundMagic = 0x1.8p23f;

// e^x: n = round(x / ln 2), r = x - n ln 2 in two parts, a polynomial in r, times 2^n in two exact
// halves. At most 1 ulp; 0 below kExpLow, +infinity above kExpHigh. Branch-free, so that it
// vectorises.
inline constexpr float kExpHigh = 0x1.62e42ep+6f;  // 0x42b17217: the last with a finite result
inline constexpr float kExpLow = -0x1.9fe368p+6f;  // 0xc2cff1b4: the last with a result above 0

inline float Exp(float x) {
  const float capped = x < kExpHigh ? x : kExpHigh;
  const float z = capped > kExpLow ? capped : kExpLow;
  const float shifted = Fma(z, 0x1.715476p+0f, kRoundMagic);  // 1 / ln 2
  const float n = shifted - kRoundMagic;
  float r = Fma(n, -0x1.62e4p-1f, z);  // ln 2, upper 15 bits: exact
  r = Fma(n, -0x1.7f7d1cp-20f, r);     // ln 2, the rest
  float p = 0x1.6a24p-10f;
  p = Fma(p, r, 0x1.123a02p-7f);
  p = Fma(p, r, 0x1.5558f2p-5f);
  p = Fma(p, r, 0x1.555492p-3f);
  p = Fma(p, r, 0x1.fffffcp-2f);
  p = Fma(p, r, 1.0f);
  p = Fma(p, r, 1.0f);
  const int32_t power = static_cast<int32_t>(BitsOf(shifted) - BitsOf(kRoundMagic));
  const int32_t half = power >> 1;
  const float scale_a = FloatOf(static_cast<uint32_t>(half + 127) << 23);
  const float scale_b = FloatOf(static_cast<uint32_t>(power - half + 127) << 23);
  const float y = (p * scale_a) * scale_b;
  const float upper = x > kExpHigh ? __builtin_inff() : y;
  const float result = x < kExpLow ? 0.0f : upper;
  return x == x ? result : x;
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_LANES_H_
