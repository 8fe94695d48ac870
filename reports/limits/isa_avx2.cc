// Limits of AVX2 with FMA.
#if defined(__x86_64__)

#include <immintrin.h>

#include "reports/limits/isa_loops.h"

namespace lockstep::internal {
namespace {

struct Vector {
  using Float = __m256;
  using Int = __m256i;
  static constexpr size_t kBytes = 32;

  static Float Floats(float value) { return _mm256_set1_ps(value); }
  static Int Ints(int8_t value) { return _mm256_set1_epi8(value); }
  static Int Load(const std::byte* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Int Or(Int a, Int b) { return _mm256_or_si256(a, b); }
  static uint64_t First(Int a) {
    return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm256_castsi256_si128(a)));
  }
  static uint64_t First(Float a) { return First(_mm256_castps_si256(a)); }
  static Float Fma(Float acc, Float x) { return _mm256_fmadd_ps(acc, x, x); }
  static Int Dot16(Int acc, Int x) { return _mm256_add_epi32(acc, _mm256_madd_epi16(x, x)); }
  static Int Dot8(Int acc, Int x) {
    const Int pairs = _mm256_maddubs_epi16(x, x);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static void Opaque(Int* x) { asm volatile("" : "+x"(*x)); }
};

}  // namespace

const IsaLimits kAvx2Limits = {
    .name = "avx2",
    .read = Read<Vector>,
    .fma = FmaLoop<Vector>(),
    .dots = {DotLoop<Vector, Vector::Dot16, 6>(16), DotLoop<Vector, Vector::Dot8, 6>(32)},
};

}  // namespace lockstep::internal

#endif  // __x86_64__
