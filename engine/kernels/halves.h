// Sixteen halves widened at once. Intrinsics where g++ has no vector conversion: F16C, and NEON
// where LOCKSTEP_NEON asks for it.
//
// Internal linkage and no standard library, for the reasons of bits.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_HALVES_H_
#define LOCKSTEP_ENGINE_KERNELS_HALVES_H_

#include <cstdint>

#include "engine/kernels/lanes.h"

#if defined(__F16C__) || defined(__AVX512BW__)
#include <immintrin.h>
#elif defined(LOCKSTEP_NEON)
#include <arm_neon.h>
#endif

namespace lockstep::internal {
namespace {

// 16 halves, zero-extended.
inline void LoadHalves(const uint8_t* from, Ints (&out)[kParts]) {
#if defined(__AVX512BW__)
  // g++ 12 widens a half of the vector at a time and joins them.
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  out[0] = __builtin_bit_cast(Ints, _mm512_cvtepu16_epi32(halves));
#elif defined(__AVX2__)
  using Halves = uint16_t __attribute__((vector_size(kVectorBytes / 2)));
  for (int p = 0; p < kParts; ++p) {
    Halves halves;
    __builtin_memcpy(&halves, from + p * (kVectorBytes / 2), sizeof halves);
    out[p] = __builtin_convertvector(halves, Ints);
  }
#else
  const Shorts8 zero = {};
  for (int p = 0; p < kParts; p += 2) {
    Shorts8 v;
    __builtin_memcpy(&v, from + p * 8, sizeof v);
    out[p] = __builtin_bit_cast(Ints, __builtin_shufflevector(v, zero, 0, 8, 1, 9, 2, 10, 3, 11));
    out[p + 1] =
        __builtin_bit_cast(Ints, __builtin_shufflevector(v, zero, 4, 12, 5, 13, 6, 14, 7, 15));
  }
#endif
}

// WidenF16 by the processor's own conversion where there is one.
inline float WidenHalf(uint16_t half) {
#if defined(__F16C__)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
#else
  return WidenF16(half);
#endif
}

// WidenF16 of 16 halves.
#if defined(__F16C__)
inline Lanes WidenHalves(const uint8_t* from) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) {
    const uint8_t* at = from + p * (kVectorBytes / 2);
#if defined(__AVX512BW__)
    x.part[p] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
#else
    x.part[p] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
#endif
  }
  return x;
}
#elif defined(LOCKSTEP_NEON)
inline Lanes WidenHalves(const uint8_t* from) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) {
    float16x4_t halves;
    __builtin_memcpy(&halves, from + p * 8, sizeof halves);
    x.part[p] = __builtin_bit_cast(Floats, vcvt_f32_f16(halves));
  }
  return x;
}
#else
inline Lanes WidenHalves(const uint8_t* from) {
  Ints halves[kParts];
  LoadHalves(from, halves);
  Lanes x;
  for (int p = 0; p < kParts; ++p) {
    const Ints magnitude = halves[p] & 0x7fff;
    const Ints sign = (halves[p] & 0x8000) << 16;
    const Ints normal = (magnitude << 13) + (112 << 23);
    const Ints special = normal + (112 << 23);
    const Floats small = __builtin_convertvector(magnitude, Floats) * 0x1p-24f;
    const Ints finite = magnitude < 0x400 ? __builtin_bit_cast(Ints, small) : normal;
    const Ints value = magnitude >= 0x7c00 ? special : finite;
    x.part[p] = __builtin_bit_cast(Floats, value | sign);
  }
  return x;
}
#endif

// WidenBF16 of 16 halves.
inline Lanes WidenBrainHalves(const uint8_t* from) {
  Ints halves[kParts];
  LoadHalves(from, halves);
  Lanes x;
  for (int p = 0; p < kParts; ++p) {
    x.part[p] = __builtin_bit_cast(Floats, halves[p] << 16);
  }
  return x;
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_HALVES_H_
