// Limits of AVX-512 with VNNI: the exact dot product is one instruction.
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
  // Spelt out: g++ 12 puts two moves around the intrinsic.
  static Int Dot(Int acc, Int x) {
    asm("vpdpbusd %1, %1, %0" : "+v"(acc) : "v"(x));
    return acc;
  }
  static void Opaque(Int* x) { asm volatile("" : "+v"(*x)); }
};

}  // namespace

const IsaLimits kAvx512VnniLimits = {
    .name = "avx512vnni",
    .read = Read<Vector>,
    .fma = FmaLoop<Vector>(),
    .dots = {DotLoop<Vector, Vector::Dot, 12>(64)},
};

}  // namespace lockstep::internal

#endif  // __x86_64__
