// Limits of NEON, as every aarch64 has it.
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
  static Int Dot(Int acc, Int x) {
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(x));
    const int16x8_t both = vmlal_high_s8(low, x, x);  // two products fit, |x| <= 127
    return vreinterpretq_s8_s32(vpadalq_s16(vreinterpretq_s32_s8(acc), both));
  }
  static void Opaque(Int* x) { asm volatile("" : "+w"(*x)); }
};

}  // namespace

const IsaLimits kNeonLimits = {
    .name = "neon",
    .read = Read<Vector>,
    .fma = FmaLoop<Vector>(),
    .dots = {DotLoop<Vector, Vector::Dot, 12>(16)},
};

}  // namespace lockstep::internal

#endif  // __aarch64__
