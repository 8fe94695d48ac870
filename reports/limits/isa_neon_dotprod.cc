// Limits of NEON with dot products.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "reports/limits/isa_loops.h"

namespace lockstep::internal {
namespace {

struct Vector {
  using Float = float32x4_t;
  using Int = int8x16_t;
  static constexpr size_t kBytes = 16;

  static Float Floats(float value) { return vdupq_n_f32(value); }
  static Int Ints(int8_t value) { return vdupq_n_s8(value); }
  static Int Load(const std::byte* from) { return vld1q_s8(reinterpret_cast<const int8_t*>(from)); }
  static Int Or(Int a, Int b) { return vorrq_s8(a, b); }
  static uint64_t First(Int a) {
    return static_cast<uint64_t>(vgetq_lane_s64(vreinterpretq_s64_s8(a), 0));
  }
  static uint64_t First(Float a) { return First(vreinterpretq_s8_f32(a)); }
  static Float Fma(Float acc, Float x) { return vfmaq_f32(acc, x, x); }
  // Spelt out: g++ 12 puts two moves around the intrinsic.
  static Int Dot(Int acc, Int x) {
    asm("sdot %0.4s, %1.16b, %1.16b" : "+w"(acc) : "w"(x));
    return acc;
  }
  static void Opaque(Int* x) { asm volatile("" : "+w"(*x)); }
};

}  // namespace

const IsaLimits kNeonDotprodLimits = {
    .name = "neon_dotprod",
    .read = Read<Vector>,
    .fma = FmaLoop<Vector>(),
    .dots = {DotLoop<Vector, Vector::Dot, 12>(16)},
};

}  // namespace lockstep::internal

#endif  // __aarch64__
