// Sixteen floats at once, in vectors as wide as the instruction set compiled for has them: the 16
// lanes of tree16, the 16 output rows of a group. Generic vectors of g++ and clang; an intrinsic
// only where they have no word for it (fma).
//
// Internal linkage and no standard library, for the reasons of bits.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_LANES_H_
#define LOCKSTEP_ENGINE_KERNELS_LANES_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/bits.h"

#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace lockstep::internal {
namespace {

#if defined(__AVX512BW__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

// What is kept in registers: chains of tokens in matmul; in attention chains of scores, and of
// values (rows by chunks of 16).
#if defined(__AVX512BW__)
inline constexpr size_t kTileTokens = 12;
inline constexpr size_t kScoreChains = 16;
inline constexpr int kScoreRows = 2;
inline constexpr int kValueRows = 6;
inline constexpr size_t kValueChunks = 4;
#elif defined(__AVX2__)
inline constexpr size_t kTileTokens = 6;
inline constexpr size_t kScoreChains = 4;
inline constexpr int kScoreRows = 2;
inline constexpr int kValueRows = 3;
inline constexpr size_t kValueChunks = 2;
#else
inline constexpr size_t kTileTokens = 4;
inline constexpr size_t kScoreChains = 2;
inline constexpr int kScoreRows = 1;
inline constexpr int kValueRows = 2;
inline constexpr size_t kValueChunks = 1;
#endif

inline constexpr int kLanes = 16;
inline constexpr int kWidth = kVectorBytes / 4;  // floats of a vector
inline constexpr int kParts = kLanes / kWidth;   // vectors of 16 lanes

using Floats = float __attribute__((vector_size(kVectorBytes)));
using Ints = int32_t __attribute__((vector_size(kVectorBytes)));
using Bytes = int8_t __attribute__((vector_size(16)));
using Shorts8 = int16_t __attribute__((vector_size(16)));
using Floats4 = float __attribute__((vector_size(16)));

// Before a loop over a small constant: every step gets registers of its own.
#define LOCKSTEP_UNROLL _Pragma("GCC unroll 16")

struct Lanes {
  Floats part[kParts];
};

inline Lanes LoadLanes(const float* from) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) __builtin_memcpy(&x.part[p], from + p * kWidth, kVectorBytes);
  return x;
}

inline void StoreLanes(const Lanes& x, float* to) {
  for (int p = 0; p < kParts; ++p) __builtin_memcpy(to + p * kWidth, &x.part[p], kVectorBytes);
}

inline Lanes SplatLanes(float value) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) x.part[p] = value - Floats{};  // value + 0 would lose -0
  return x;
}

inline Lanes operator+(const Lanes& a, const Lanes& b) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) x.part[p] = a.part[p] + b.part[p];
  return x;
}

inline Lanes operator-(const Lanes& a, const Lanes& b) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) x.part[p] = a.part[p] - b.part[p];
  return x;
}

inline Lanes operator*(const Lanes& a, const Lanes& b) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) x.part[p] = a.part[p] * b.part[p];
  return x;
}

inline Lanes operator/(const Lanes& a, const Lanes& b) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) x.part[p] = a.part[p] / b.part[p];
  return x;
}

inline Lanes NegateLanes(const Lanes& a) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) x.part[p] = -a.part[p];
  return x;
}

// 16 exact integers (below 2^24) as floats.
inline Lanes LanesOf(const int32_t* integers) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) {
    Ints part;
    __builtin_memcpy(&part, integers + p * kWidth, sizeof part);
    x.part[p] = __builtin_convertvector(part, Floats);
  }
  return x;
}

// 16 signed bytes as floats.
inline Lanes LanesOf(Bytes bytes) {
  Lanes x;
#if defined(__AVX512BW__)
  const __m512i wide = _mm512_cvtepi8_epi32(__builtin_bit_cast(__m128i, bytes));
  x.part[0] = __builtin_bit_cast(Floats, _mm512_cvtepi32_ps(wide));
#elif defined(__AVX2__)
  using Shorts16 = int16_t __attribute__((vector_size(32)));
  const auto shorts = __builtin_convertvector(bytes, Shorts16);
  const auto low = __builtin_shufflevector(shorts, shorts, 0, 1, 2, 3, 4, 5, 6, 7);
  const auto high = __builtin_shufflevector(shorts, shorts, 8, 9, 10, 11, 12, 13, 14, 15);
  x.part[0] = __builtin_convertvector(__builtin_convertvector(low, Ints), Floats);
  x.part[1] = __builtin_convertvector(__builtin_convertvector(high, Ints), Floats);
#else
  // SSE2 widens by interleaving: each byte twice, each short twice, then the copies shifted out.
  const Shorts8 pairs[2] = {
      __builtin_bit_cast(Shorts8, __builtin_shufflevector(bytes, bytes, 0, 16, 1, 17, 2, 18, 3, 19,
                                                          4, 20, 5, 21, 6, 22, 7, 23)),
      __builtin_bit_cast(Shorts8, __builtin_shufflevector(bytes, bytes, 8, 24, 9, 25, 10, 26, 11,
                                                          27, 12, 28, 13, 29, 14, 30, 15, 31))};
  for (int p = 0; p < 2; ++p) {
    const Shorts8 v = pairs[p];
    const auto low = __builtin_shufflevector(v, v, 0, 8, 1, 9, 2, 10, 3, 11);
    const auto high = __builtin_shufflevector(v, v, 4, 12, 5, 13, 6, 14, 7, 15);
    x.part[2 * p] = __builtin_convertvector(__builtin_bit_cast(Ints, low) >> 24, Floats);
    x.part[2 * p + 1] = __builtin_convertvector(__builtin_bit_cast(Ints, high) >> 24, Floats);
  }
#endif
  return x;
}

// tree16's steps down to the width of a vector.
inline Floats FoldToVector(const Lanes& x) {
  if constexpr (kParts == 1) return x.part[0];
  if constexpr (kParts == 2) return x.part[0] + x.part[1];
  if constexpr (kParts == 4) return (x.part[0] + x.part[2]) + (x.part[1] + x.part[3]);
}

// tree16's steps of width 8 and 4.
inline Floats4 FoldToFour(const Lanes& x) {
  const Floats v = FoldToVector(x);
#if defined(__AVX512BW__)
  const auto eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX2__)
  const Floats eight = v;
#endif
#if defined(__AVX2__)
  return __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
         __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  return v;
#endif
}

// The last steps of tree16 for kWidth vectors at once: lane i of the result is the sum of vector i.
// A step adds the upper half of each run of lanes to the lower, for two vectors in one.
#if defined(__AVX512BW__)
inline Floats SumEach(const Floats (&x)[kWidth]) {
  Floats half[8], quarter[4], eighth[2];
  for (int i = 0; i < 8; ++i) {  // lanes 0..7 of vector i, then of vector i + 8
    half[i] = __builtin_shufflevector(x[i], x[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20,
                                      21, 22, 23) +
              __builtin_shufflevector(x[i], x[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27,
                                      28, 29, 30, 31);
  }
  for (int i = 0; i < 4; ++i) {  // four lanes each of vectors i, i + 8, i + 4, i + 12
    quarter[i] = __builtin_shufflevector(half[i], half[i + 4], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18,
                                         19, 24, 25, 26, 27) +
                 __builtin_shufflevector(half[i], half[i + 4], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21,
                                         22, 23, 28, 29, 30, 31);
  }
  for (int i = 0; i < 2; ++i) {  // in each run of four: two lanes of one vector, two of i + 2
    eighth[i] = __builtin_shufflevector(quarter[i], quarter[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8,
                                        9, 24, 25, 12, 13, 28, 29) +
                __builtin_shufflevector(quarter[i], quarter[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10,
                                        11, 26, 27, 14, 15, 30, 31);
  }
  const Floats a = eighth[0], b = eighth[1];
  const Floats sums =
      __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
      __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  // Vectors lie in the order 0 1 2 3, 8 9 10 11, 4 5 6 7, 12 13 14 15.
  return __builtin_shufflevector(sums, sums, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
}
#elif defined(__AVX2__)
inline Floats SumEach(const Floats (&x)[kWidth]) {
  Floats half[4], quarter[2];
  for (int i = 0; i < 4; ++i) {
    half[i] = __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) +
              __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 2; ++i) {
    quarter[i] = __builtin_shufflevector(half[i], half[i + 2], 0, 1, 8, 9, 4, 5, 12, 13) +
                 __builtin_shufflevector(half[i], half[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  const Floats a = quarter[0], b = quarter[1];
  return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
         __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
}
#else
inline Floats SumEach(const Floats (&x)[kWidth]) {
  Floats half[2];
  for (int i = 0; i < 2; ++i) {
    half[i] = __builtin_shufflevector(x[i], x[i + 2], 0, 1, 4, 5) +
              __builtin_shufflevector(x[i], x[i + 2], 2, 3, 6, 7);
  }
  return __builtin_shufflevector(half[0], half[1], 0, 4, 2, 6) +
         __builtin_shufflevector(half[0], half[1], 1, 5, 3, 7);
}
#endif

// The last steps of tree16: 16 lanes to one sum.
inline float SumLanes(const Lanes& x) {
  const Floats4 four = FoldToFour(x);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)

// a * b + c in each lane, rounded once.
inline Lanes FmaLanes(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes x;
  for (int p = 0; p < kParts; ++p) {
#if defined(__AVX512BW__)
    x.part[p] = _mm512_fmadd_ps(a.part[p], b.part[p], c.part[p]);
#elif defined(__AVX2__)
    x.part[p] = _mm256_fmadd_ps(a.part[p], b.part[p], c.part[p]);
#else
    for (int j = 0; j < kWidth; ++j) {
      x.part[p][j] = __builtin_fmaf(a.part[p][j], b.part[p][j], c.part[p][j]);
    }
#endif
  }
  return x;
}

#else

using Doubles4 = double __attribute__((vector_size(32)));
using Words = uint32_t __attribute__((vector_size(16)));
using Longs2 = int64_t __attribute__((vector_size(16)));

// Where narrowing a sum in double to float is not the same as rounding the exact sum once: that the
// sum was rounded to double before matters only when this rounding hit the middle of two floats.
// For a normal result the low 29 bits are 2^28 then, for a subnormal one they may be anything.
//
// Two doubles as words {low, high, low, high}; -1 for each word that shows a risk. Per word,
// (word & mask) + offset < bound as signed numbers, with offsets that put the first risky value at
// the smallest integer: low & 0x1fffffff == 0x10000000, 0 < high & 0x7fffffff < 897 << 20.
inline Ints RiskyWords(Words sum) {
  constexpr uint32_t kLeast = 0x80000000u;
  constexpr uint32_t kLow = kLeast - 0x10000000u, kHigh = kLeast - 1;
  constexpr int32_t kLowBound = static_cast<int32_t>(kLeast + 1);
  constexpr int32_t kHighBound = static_cast<int32_t>(kLeast + (897u << 20) - 1);
  const Words shifted = (sum & Words{0x1fffffffu, 0x7fffffffu, 0x1fffffffu, 0x7fffffffu}) +
                        Words{kLow, kHigh, kLow, kHigh};
  return __builtin_bit_cast(Ints, shifted) < Ints{kLowBound, kHighBound, kLowBound, kHighBound};
}

[[gnu::noinline, gnu::cold]] void EmulatedFmaLanes(const float* a, const float* b, const float* c,
                                                   float* out) {
  for (int j = 0; j < kLanes; ++j) out[j] = EmulatedFma(a[j], b[j], c[j]);
}

// a * b + c in each lane, rounded once: the short way, a sum in double, and the exact one where it
// is needed.
inline Lanes FmaLanes(const Lanes& a, const Lanes& b, const Lanes& c) {
  static_assert(kWidth == 4);
  Lanes x;
  Ints risky = {};
  for (int p = 0; p < kParts; ++p) {
    const Doubles4 sum = __builtin_convertvector(a.part[p], Doubles4) *
                             __builtin_convertvector(b.part[p], Doubles4) +
                         __builtin_convertvector(c.part[p], Doubles4);
    Words words[2];
    __builtin_memcpy(words, &sum, sizeof words);
    risky += RiskyWords(words[0]) + RiskyWords(words[1]);
    x.part[p] = __builtin_convertvector(sum, Floats);
  }
  const auto any = __builtin_bit_cast(Longs2, risky);
  if (__builtin_expect((any[0] | any[1]) != 0, 0)) {
    float from[3][kLanes], to[kLanes];  // in memory here only, so that the lanes stay in registers
    StoreLanes(a, from[0]);
    StoreLanes(b, from[1]);
    StoreLanes(c, from[2]);
    EmulatedFmaLanes(from[0], from[1], from[2], to);
    return LoadLanes(to);
  }
  return x;
}

#endif

// c with its first `count` lanes replaced by fma(a[j], b[j], c[j]): absent elements are skipped.
inline Lanes FmaFirstLanes(const float* a, const float* b, int32_t count, const Lanes& c) {
  float sums[kLanes];
  StoreLanes(c, sums);
  for (int32_t j = 0; j < count; ++j) sums[j] = Fma(a[j], b[j], sums[j]);
  return LoadLanes(sums);
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_LANES_H_
