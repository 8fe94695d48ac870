// Limits of the baseline that the library is built for: SSE2 on x86-64, else what plain C++ gives.
#include <cstring>

#include "reports/limits/isa_loops.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lockstep::internal {
namespace {

#if defined(__SSE2__)
struct Vector {
  using Float = __m128;
  using Int = __m128i;
  static constexpr size_t kBytes = 16;

  static Float Floats(float value) { return _mm_set1_ps(value); }
  static Int Ints(int8_t value) { return _mm_set1_epi8(value); }
  static Int Load(const std::byte* from) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(from));
  }
  static Int Or(Int a, Int b) { return _mm_or_si128(a, b); }
  static uint64_t First(Int a) { return static_cast<uint64_t>(_mm_cvtsi128_si64(a)); }
  static uint64_t First(Float a) { return First(_mm_castps_si128(a)); }
  static Float Fma(Float acc, Float x) { return _mm_add_ps(_mm_mul_ps(acc, x), x); }
  static Int Dot(Int acc, Int x) { return _mm_add_epi32(acc, _mm_madd_epi16(x, x)); }
  static void Opaque(Int* x) { asm volatile("" : "+x"(*x)); }
  static constexpr int kProducts = 8;
};
#else
struct Vector {
  using Float = float;
  using Int = uint64_t;
  static constexpr size_t kBytes = 8;

  static Float Floats(float value) { return value; }
  static Int Ints(int8_t value) { return static_cast<uint64_t>(value); }
  static Int Load(const std::byte* from) {
    uint64_t value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  static Int Or(Int a, Int b) { return a | b; }
  static uint64_t First(Int a) { return a; }
  static uint64_t First(Float a) { return static_cast<uint64_t>(a); }
  static Float Fma(Float acc, Float x) { return acc * x + x; }
  static Int Dot(Int acc, Int x) { return acc + x * x; }
  static void Opaque(Int* x) { asm volatile("" : "+r"(*x)); }
  static constexpr int kProducts = 1;
};
#endif

}  // namespace

const IsaLimits kScalarLimits = {
    .name = "scalar",
    .read = Read<Vector>,
    .fma = FmaLoop<Vector>(),
    .dots = {DotLoop<Vector, Vector::Dot, 6>(Vector::kProducts)},
};

}  // namespace lockstep::internal
