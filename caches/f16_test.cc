#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "caches/codec.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What the bits mean, by the definition of binary16 and exact in double.
double Meaning(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(F16Test, EveryFiniteValueDecodesByDefinitionAndComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if ((bits >> 10 & 31) == 31) continue;
    const float value = F32FromF16(bits);
    ASSERT_EQ(static_cast<double>(value), Meaning(bits)) << i;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
    ASSERT_EQ(F16FromF32(value), bits);
  }
}

TEST(F16Test, InfinitiesAndNansAreKeptAsSuch) {
  EXPECT_EQ(F32FromF16(0x7c00), kInfinity);
  EXPECT_EQ(F32FromF16(0xfc00), -kInfinity);
  EXPECT_EQ(F16FromF32(kInfinity), 0x7c00);
  EXPECT_EQ(F16FromF32(-kInfinity), 0xfc00);
  for (uint32_t mantissa = 1; mantissa < 0x400; ++mantissa) {
    for (uint32_t sign : {0u, 0x8000u}) {
      const float value = F32FromF16(static_cast<uint16_t>(sign | 0x7c00u | mantissa));
      ASSERT_EQ(std::bit_cast<uint32_t>(value), 0x7fc00000u) << mantissa;
    }
  }
  // Also payloads that lie in the bits that binary16 drops: a truncating encoder makes them inf.
  for (uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff801fffu, 0xffffffffu, 0x7fa00000u}) {
    EXPECT_EQ(F16FromF32(std::bit_cast<float>(bits)), 0x7e00) << bits;
  }
}

// Rounding is monotone, so the three values around every midpoint decide it everywhere.
TEST(F16Test, EveryMidpointRoundsToEvenAndItsNeighboursToTheNearest) {
  for (uint32_t i = 0; i < 0x7bff; ++i) {
    const auto low = static_cast<uint16_t>(i);
    const auto high = static_cast<uint16_t>(i + 1);
    const uint16_t even = (low & 1) == 0 ? low : high;
    const auto midpoint = static_cast<float>((Meaning(low) + Meaning(high)) / 2);
    ASSERT_EQ(F16FromF32(midpoint), even) << i;
    ASSERT_EQ(F16FromF32(-midpoint), even | 0x8000) << i;
    ASSERT_EQ(F16FromF32(std::nextafter(midpoint, 0.0f)), low) << i;
    ASSERT_EQ(F16FromF32(std::nextafter(midpoint, kInfinity)), high) << i;
    ASSERT_EQ(F16FromF32(-std::nextafter(midpoint, kInfinity)), high | 0x8000) << i;
  }
}

TEST(F16Test, OverflowBeginsAt65520) {
  EXPECT_EQ(F16FromF32(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(F16FromF32(65520.0f), 0x7c00);
  EXPECT_EQ(F16FromF32(-65520.0f), 0xfc00);
  EXPECT_EQ(F16FromF32(std::numeric_limits<float>::max()), 0x7c00);
}

TEST(F16Test, UnderflowKeepsTheSign) {
  EXPECT_EQ(F16FromF32(std::ldexp(1.0f, -25)), 0x0000);
  EXPECT_EQ(F16FromF32(-std::ldexp(1.0f, -25)), 0x8000);
  EXPECT_EQ(F16FromF32(std::nextafter(std::ldexp(1.0f, -25), 1.0f)), 0x0001);
  EXPECT_EQ(F16FromF32(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(F16FromF32(-0.0f), 0x8000);
}

}  // namespace
}  // namespace lockstep
