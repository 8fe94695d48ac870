// CheckFloatingPointEnvironment sees every mode of the processor that changes specified bits.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>

#include "engine/math.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace lockstep {
namespace {

TEST(FloatingPointEnvironmentTest, AcceptsTheSpecifiedAndAbortsOnOtherRounding) {
  CheckFloatingPointEnvironment();
  for (int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    EXPECT_DEATH(
        {
          std::fesetround(mode);
          CheckFloatingPointEnvironment();
        },
        "rounding of float")
        << mode;
  }
}

#if defined(__SSE2__)

void CheckWithControlBits(unsigned bits) {
  _mm_setcsr(_mm_getcsr() | bits);
  CheckFloatingPointEnvironment();
}

TEST(FloatingPointEnvironmentTest, AbortsWhenSubnormalsAreFlushed) {
  constexpr unsigned kDenormalsAreZero = 0x0040, kFlushToZero = 0x8000;
  EXPECT_DEATH(CheckWithControlBits(kFlushToZero), "subnormal results");
  EXPECT_DEATH(CheckWithControlBits(kDenormalsAreZero), "subnormal operands");
}

#elif defined(__aarch64__)

void CheckWithControlBits(uint64_t bits) {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | bits));
  CheckFloatingPointEnvironment();
  asm volatile("msr fpcr, %0" : : "r"(control));
}

TEST(FloatingPointEnvironmentTest, AbortsWhenSubnormalsAreFlushed) {
  constexpr uint64_t kFlushToZero = 1u << 24;
  EXPECT_DEATH(CheckWithControlBits(kFlushToZero), "subnormal results");
}

TEST(FloatingPointEnvironmentTest, AbortsWhenHalvesHaveNoInfinity) {
  constexpr uint64_t kAlternativeHalf = 1u << 26;
  EXPECT_DEATH(CheckWithControlBits(kAlternativeHalf), "binary16");
}

// Which NaN comes out is not specified, and no operation is done in binary16.
TEST(FloatingPointEnvironmentTest, AcceptsModesThatChangeNoSpecifiedBit) {
  constexpr uint64_t kDefaultNan = 1u << 25, kFlushHalvesToZero = 1u << 19;
  CheckWithControlBits(kDefaultNan);
  CheckWithControlBits(kFlushHalvesToZero);
}

#endif

}  // namespace
}  // namespace lockstep
