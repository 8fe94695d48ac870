// The operations of engine/ARITHMETIC.md that device kernels need besides +, -, * and /, which they
// write plainly. For nvcc and the host's compiler; nothing of a vendor's library.
#ifndef LOCKSTEP_ENGINE_DEVICE_MATH_H_
#define LOCKSTEP_ENGINE_DEVICE_MATH_H_

#include <cstdint>

#include "caches/device_kernel.h"
#include "caches/device_math.h"
#if !defined(__CUDACC__)
#include "engine/kernels/bits.h"
#endif

namespace lockstep::device {

// Four words or floats that are loaded and stored at once.
struct alignas(16) Floats4 {
  float v[4];
};
struct alignas(16) Words4 {
  uint32_t v[4];
};
struct alignas(8) Words2 {
  uint32_t v[2];
};

// a * b + c, rounded once.
LOCKSTEP_KERNEL float Fma(float a, float b, float c) {
#if defined(__CUDACC__)
  return __fmaf_rn(a, b, c);
#else
  // The sum in binary64 is the exact one or rounded; rounding it again is right unless it lies
  // half-way between two floats or becomes a subnormal.
  const double sum = double{a} * double{b} + double{c};
  const uint64_t bits = internal::BitsOf(sum);
  const bool half_way = (bits & 0x1fffffffu) == 0x10000000u;
  const bool tiny = (bits & ~(uint64_t{1} << 63)) - 1 < internal::BitsOf(0x1p-126) - 1;
  if (half_way || tiny) [[unlikely]]
    return internal::EmulatedFma(a, b, c);
  return static_cast<float>(sum);
#endif
}

LOCKSTEP_KERNEL float SquareRoot(float x) {
#if defined(__CUDACC__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

// c + the sum of the products of four signed bytes.
LOCKSTEP_KERNEL int32_t Dp4a(uint32_t a, uint32_t b, int32_t c) {
#if defined(__CUDACC__)
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
#else
  for (int i = 0; i < 4; ++i) {
    c += int32_t{static_cast<int8_t>(a >> (8 * i))} * static_cast<int8_t>(b >> (8 * i));
  }
  return c;
#endif
}

// Byte j is byte `selector >> 4 j & 7` of `a` and, from 4 on, `b`. REQUIRES: no bit of 0x8888.
LOCKSTEP_KERNEL uint32_t BytesAt(uint32_t a, uint32_t b, uint32_t selector) {
#if defined(__CUDACC__)
  return __byte_perm(a, b, selector);
#else
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (int j = 0; j < 4; ++j) {
    out |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * j) & 7u)) & 0xffu) << (8 * j);
  }
  return out;
#endif
}

// 2^n for -126 <= n <= 127.
LOCKSTEP_KERNEL float PowerOfTwo(int32_t n) {
  return FloatOf(static_cast<uint32_t>(n + 127) << 23);
}

// 1.5 * 2^23: adding it leaves an integer in the low bits, rounded half to even, for |x| < 2^22.
constexpr float kRoundMagic = 0x1.8p23f;
constexpr uint32_t kRoundMagicBits = 0x4b400000u;

// e^x, engine/ARITHMETIC.md 5.1.
LOCKSTEP_KERNEL float Exp(float x) {
  constexpr float kHigh = 0x1.62e42ep+6f;  // the last with a finite result
  constexpr float kLow = -0x1.9fe368p+6f;  // the last with a result above 0
  const float below = x < kHigh ? x : kHigh;
  const float z = below > kLow ? below : kLow;                // a NaN becomes some number
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
  const auto power = static_cast<int32_t>(BitsOf(shifted) - kRoundMagicBits);
  const int32_t half = power >> 1;
  const float scaled = (p * PowerOfTwo(half)) * PowerOfTwo(power - half);
  const float capped = x > kHigh ? FloatOf(0x7f800000u) : scaled;
  const float result = x < kLow ? 0.0f : capped;
  return x == x ? result : x;
}

// engine/ARITHMETIC.md 5.2.
LOCKSTEP_KERNEL float Tanh(float x) {
  const float a = FloatOf(BitsOf(x) & 0x7fffffffu);
  const float z = a * a;
  float p = -0x1.75e1dp-8f;
  p = Fma(p, z, 0x1.52269ap-6f);
  p = Fma(p, z, -0x1.b83c5ap-5f);
  p = Fma(p, z, 0x1.110726p-3f);
  p = Fma(p, z, -0x1.555532p-2f);
  const float small = Fma(a * z, p, a);
  const float large = 1.0f - 2.0f / (Exp(a + a) + 1.0f);
  const float r = a < 0x1.4p-1f ? small : large;
  return FloatOf(BitsOf(r) | (BitsOf(x) & 0x80000000u));
}

LOCKSTEP_KERNEL float SoftCap(float x, float cap) { return Tanh(x / cap) * cap; }

// 1 / (1 + e^-x).
LOCKSTEP_KERNEL float Sigmoid(float x) {
  return 1.0f / (1.0f + Exp(FloatOf(BitsOf(x) ^ 0x80000000u)));
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_MATH_H_
