// Limits of AVX-512 F, BW, DQ and VL.
#if defined(__x86_64__)

#include <immintrin.h>

#include "reports/limits/isa_loops.h"

namespace lockstep::internal {
namespace {

struct Vector {
  using Float = __m512;
  using Int = __m512i;
  static constexpr size_t kBytes = 64;

  static Float Floats(float value) { return _mm512_set1_ps(value); }
  static Int Ints(int8_t value) { return _mm512_set1_epi8(value); }
  static Int Load(const std::byte* from) { return _mm512_load_si512(from); }
  static Int Or(Int a, Int b) { return _mm512_or_si512(a, b); }
  static uint64_t First(Int a) { return static_cast<uint64_t>(a[0]); }
  static uint64_t First(Float a) { return First(_mm512_castps_si512(a)); }
  static Float Fma(Float acc, Float x) { return _mm512_fmadd_ps(acc, x, x); }
  static Int Dot16(Int acc, Int x) { return _mm512_add_epi32(acc, _mm512_madd_epi16(x, x)); }
  static Int Dot8(Int acc, Int x) {
    const Int pairs = _mm512_maddubs_epi16(x, x);
    return _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  static void Opaque(Int* x) { asm volatile("" : "+v"(*x)); }
};

}  // namespace

const IsaLimits kAvx512Limits = {
    .name = "avx512",
    .read = Read<Vector>,
    .fma = FmaLoop<Vector>(),
    .dots = {DotLoop<Vector, Vector::Dot16, 6>(32), DotLoop<Vector, Vector::Dot8, 6>(64)},
};

}  // namespace lockstep::internal

#endif  // __x86_64__
