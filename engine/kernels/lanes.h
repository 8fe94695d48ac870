// The basic operations of engine/ARITHMETIC.md, shared by every translation unit that computes.
//
// Everything here has internal linkage and uses nothing from the standard library: the file is
// compiled once per instruction set, and an inline function with external linkage would let the
// linker put AVX code into the baseline. For the same reason: __builtin_bit_cast, no std::byte.
#ifndef LOCKSTEP_ENGINE_KERNELS_LANES_H_
#define LOCKSTEP_ENGINE_KERNELS_LANES_H_

#include <cstddef>
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

// out[j] = fma(a[j], b[j], c[j]). out may be any of the others.
template <size_t N>
inline void FmaLanes(const float* a, const float* b, const float* c, float* out) {
  for (size_t j = 0; j < N; ++j) out[j] = __builtin_fmaf(a[j], b[j], c[j]);
}

// c[j] = fma(a[j], b, c[j]).
template <size_t N>
inline void FmaLanes(const float* a, float b, float* c) {
  for (size_t j = 0; j < N; ++j) c[j] = __builtin_fmaf(a[j], b, c[j]);
}

#else

inline constexpr bool kHardwareFma = false;

inline float Fma(float a, float b, float c) { return EmulatedFma(a, b, c); }

using Float2 = float __attribute__((vector_size(8)));
using Double2 = double __attribute__((vector_size(16)));
using Int2 = int64_t __attribute__((vector_size(16)));

// fma of two lanes by the short way, a sum in double narrowed to float, which rounds twice. That is
// wrong only where the first rounding hits the middle between two floats: the low 29 bits of a
// normal result are 2^28, or the result is subnormal. Such lanes set `risky`.
inline Float2 FmaPair(Double2 a, Double2 b, Double2 c, Int2* risky) {
  const Double2 sum = a * b + c;
  const Int2 bits = __builtin_bit_cast(Int2, sum);
  const Double2 magnitude = __builtin_bit_cast(Double2, bits & INT64_MAX);
  // 2^28 in the low 29 bits, tested by 32-bit lanes, which SSE2 can compare.
  using Int4 = int32_t __attribute__((vector_size(16)));
  const Int4 middle = (__builtin_bit_cast(Int4, bits) & Int4{0x1fffffff, 0, 0x1fffffff, 0}) ==
                      Int4{0x10000000, 1, 0x10000000, 1};
  const Int2 subnormal = (magnitude < 0x1p-126) & (magnitude > 0.0);
  *risky |= __builtin_bit_cast(Int2, middle) | subnormal;
  return __builtin_convertvector(sum, Float2);
}

inline Double2 WidenPair(const float* from) {
  Float2 pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return __builtin_convertvector(pair, Double2);
}

// out[j] = fma(a[j], b[j], c[j]). out may be any of the others.
template <size_t N>
inline void FmaLanes(const float* a, const float* b, const float* c, float* out) {
  if constexpr (N % 2 != 0) {
    for (size_t j = 0; j < N; ++j) out[j] = EmulatedFma(a[j], b[j], c[j]);
  } else {
    float sums[N];
    Int2 risky = {};
    for (size_t j = 0; j < N; j += 2) {
      const Float2 pair = FmaPair(WidenPair(a + j), WidenPair(b + j), WidenPair(c + j), &risky);
      __builtin_memcpy(sums + j, &pair, sizeof pair);
    }
    if (__builtin_expect((risky[0] | risky[1]) != 0, 0)) {
      for (size_t j = 0; j < N; ++j) sums[j] = EmulatedFma(a[j], b[j], c[j]);
    }
    __builtin_memcpy(out, sums, sizeof sums);
  }
}

// c[j] = fma(a[j], b, c[j]).
template <size_t N>
inline void FmaLanes(const float* a, float b, float* c) {
  float copies[N];
  for (size_t j = 0; j < N; ++j) copies[j] = b;
  FmaLanes<N>(a, copies, c, c);
}

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

// The last steps of tree16: 16 lanes to one sum.
inline float SumLanes(float* lanes) {
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

// Adding 1.5 * 2^23 leaves an integer in the low bits, rounded half to even, for |x| < 2^22.
inline constexpr float kRoundMagic = 0x1.8p23f;

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_LANES_H_
