// The basic operations of engine/ARITHMETIC.md on single numbers.
//
// Everything here has internal linkage and uses nothing from the standard library: the file is
// compiled once per instruction set, and an inline function with external linkage would let the
// linker put AVX code into the baseline. For the same reason: __builtin_bit_cast, no std::byte.
#ifndef LOCKSTEP_ENGINE_KERNELS_BITS_H_
#define LOCKSTEP_ENGINE_KERNELS_BITS_H_

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
inline float EmulatedFma(float a, float b, float c) {
  return static_cast<float>(AddRoundToOdd(double{a} * double{b}, double{c}));
}

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline constexpr bool kHardwareFma = true;
inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
inline constexpr bool kHardwareFma = false;
inline float Fma(float a, float b, float c) { return EmulatedFma(a, b, c); }
#endif

#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD)
inline constexpr bool kByteDots = true;
#else
inline constexpr bool kByteDots = false;
#endif

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

// Adding 1.5 * 2^23 leaves an integer in the low bits, rounded half to even, for |x| < 2^22.
inline constexpr float kRoundMagic = 0x1.8p23f;

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_BITS_H_
