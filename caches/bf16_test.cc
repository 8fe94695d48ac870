#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "caches/codec.h"
#include "caches/random.h"

namespace lockstep {
namespace {

// What the bits mean, by the definition of bfloat16 and exact in double.
double Meaning(uint16_t bits) {
  const int exponent = bits >> 7 & 255;
  const int mantissa = bits & 0x7f;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool IsFinite(uint16_t bits) { return (bits >> 7 & 255) != 255; }

TEST(Bf16Test, EveryFiniteValueDecodesByDefinitionAndComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if (!IsFinite(bits)) continue;
    const float value = F32FromBf16(bits);
    ASSERT_EQ(static_cast<double>(value), Meaning(bits)) << i;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
    ASSERT_EQ(Bf16FromF32(value), bits);
  }
}

// Around every value, the midpoint to the next included: of two neighbours the nearer one, of
// equally near ones the even one; infinity stands where the next number would be.
TEST(Bf16Test, Q4EveryFloatNearAValueOrAMidpointRoundsToTheNearest) {
  for (uint32_t i = 0; i < 0x7f80; ++i) {
    const double low = Meaning(static_cast<uint16_t>(i));
    const double high = i == 0x7f7f ? 0x1p128 : Meaning(static_cast<uint16_t>(i + 1));
    for (const uint32_t rest :
         {0u, 1u, 2u, 0xffu, 0x100u, 0x7ffeu, 0x7fffu, 0x8000u, 0x8001u, 0xff00u, 0xffffu}) {
      const float value = std::bit_cast<float>(i << 16 | rest);
      const double to_low = value - low, to_high = high - value;  // exact
      const bool up = to_high < to_low || (to_high == to_low && i % 2 == 1);
      const auto expected = static_cast<uint16_t>(up ? i + 1 : i);
      ASSERT_EQ(Bf16FromF32(value), expected) << i << " " << rest;
      ASSERT_EQ(Bf16FromF32(-value), expected | 0x8000) << i << " " << rest;
    }
  }
}

TEST(Bf16Test, InfinitiesAndNansAreKeptAsSuch) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(F32FromBf16(0x7f80), kInfinity);
  EXPECT_EQ(F32FromBf16(0xff80), -kInfinity);
  EXPECT_EQ(Bf16FromF32(kInfinity), 0x7f80);
  EXPECT_EQ(Bf16FromF32(-kInfinity), 0xff80);
  EXPECT_EQ(Bf16FromF32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(Bf16FromF32(std::bit_cast<float>(0x7f7f7fffu)), 0x7f7f);
  for (uint32_t mantissa = 1; mantissa < 0x80; ++mantissa) {
    for (uint32_t sign : {0u, 0x8000u}) {
      const float value = F32FromBf16(static_cast<uint16_t>(sign | 0x7f80u | mantissa));
      ASSERT_EQ(std::bit_cast<uint32_t>(value), 0x7fc00000u) << mantissa;
    }
  }
  // Payloads in the lower half, which truncation makes infinite, and those that the rounding's
  // carry makes infinite, negative or zero.
  for (uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff80ffffu, 0xffffffffu, 0x7fffffffu,
                        0x7fff8000u, 0xffff7fffu, 0x7fa00000u}) {
    EXPECT_EQ(Bf16FromF32(std::bit_cast<float>(bits)), 0x7fc0) << bits;
  }
}

// Bodies of whole vectors and tails: each element as it is alone, nothing outside touched.
TEST(Bf16Test, RowsOfAnyLengthAreTheirElements) {
  Random random(29);
  for (size_t elements = 0; elements < 101; ++elements) {
    std::vector<float> row(elements);
    for (float& x : row) x = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
    std::vector<std::byte> stored(2 * elements + 2, std::byte{0x5a});
    const auto inner = std::span(stored).subspan(1, 2 * elements);
    EncodeRow(RowType::kBf16, row, inner);
    EXPECT_EQ(stored.front(), std::byte{0x5a});
    EXPECT_EQ(stored.back(), std::byte{0x5a});
    std::vector<float> back(elements + 2, 7.0f);
    DecodeRow(RowType::kBf16, inner, std::span(back).subspan(1, elements));
    EXPECT_EQ(back.front(), 7.0f);
    EXPECT_EQ(back.back(), 7.0f);
    for (size_t i = 0; i < elements; ++i) {
      uint16_t bits;
      std::memcpy(&bits, inner.data() + 2 * i, sizeof bits);
      ASSERT_EQ(bits, Bf16FromF32(row[i])) << i << " of " << elements;
      ASSERT_EQ(std::bit_cast<uint32_t>(back[i + 1]), std::bit_cast<uint32_t>(F32FromBf16(bits)));
    }
  }
}

TEST(Bf16Test, ZeroKeepsItsSign) {
  EXPECT_EQ(Bf16FromF32(0.0f), 0x0000);
  EXPECT_EQ(Bf16FromF32(-0.0f), 0x8000);
  EXPECT_EQ(Bf16FromF32(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

}  // namespace
}  // namespace lockstep
