// The oracle's codec against the caches': written twice, in different ways, they have to agree to
// the bit, on ordinary rows and on every edge.
#include "oracle/model_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "caches/codec.h"
#include "caches/random.h"

namespace lockstep::oracle {
namespace {

TEST(ModelRowsTest, EveryF16IsDecodedAlike) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const auto ours = static_cast<float>(ValueOfF16(half));
    EXPECT_EQ(CanonicalBits(ours), CanonicalBits(F32FromF16(half))) << bits;
  }
}

// Every F16, every middle between two neighbours, and the floats beside both.
TEST(ModelRowsTest, EveryF16AndEveryTieIsRoundedAlike) {
  for (uint32_t bits = 0; bits <= 0x7c00; ++bits) {
    const float here = F32FromF16(static_cast<uint16_t>(bits));
    const float next = bits >= 0x7bff ? 65536.0f : F32FromF16(static_cast<uint16_t>(bits + 1));
    for (const float at : {here, (here + next) / 2}) {
      for (const float x : {at, std::nextafter(at, 0.0f), std::nextafter(at, 1e30f)}) {
        ASSERT_EQ(NearestF16(x), F16FromF32(x)) << x;
        ASSERT_EQ(NearestF16(-x), F16FromF32(-x)) << x;
      }
    }
  }
  EXPECT_EQ(NearestF16(std::numeric_limits<double>::quiet_NaN()), 0x7e00);
}

TEST(ModelRowsTest, Bf16IsTheUpperHalfOfF32) {
  EXPECT_EQ(ValueOfBf16(0x3f80), 1.0);
  EXPECT_EQ(ValueOfBf16(0xc049), -3.140625);
  EXPECT_TRUE(std::isnan(ValueOfBf16(0x7fc0)));
}

std::vector<float> RandomRow(Random* random, size_t elements) {
  std::vector<float> row;
  while (row.size() < elements) {
    const uint32_t style = random->Below(12);
    const float scale = std::ldexp(1.0f, random->Between(-45, 40));
    for (int i = 0; i < 32; ++i) {
      const auto bits = static_cast<uint32_t>(random->Next());
      const float ordinary = std::bit_cast<float>((bits & 0x80ffffffu) | 0x3f000000u);
      switch (style) {
        case 0:
          row.push_back(std::bit_cast<float>(bits & 0x80000000u));
          break;
        case 1:
          row.push_back(std::bit_cast<float>(bits));
          break;
        case 2:
          row.push_back(static_cast<float>(random->Between(-127, 127)) * 0.5f);
          break;
        case 3:
          row.push_back(static_cast<float>(random->Between(-16, 16)) * 0.25f);
          break;
        case 4:
          row.push_back(ordinary * std::ldexp(1.0f, random->Between(-30, 10)));
          break;
        default:
          row.push_back(ordinary * scale);
          break;
      }
    }
  }
  return row;
}

TEST(ModelRowsTest, RandomRowsAreEncodedAndDecodedAlike) {
  Random random(7);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<float> row = RandomRow(&random, 64);
    for (const RowType type :
         {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
      std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, 64)));
      EncodeRow(type, row, stored);
      ASSERT_EQ(EncodeModelRow(type, row), stored) << RowTypeName(type) << ", round " << round;
      std::vector<float> decoded(64);
      DecodeRow(type, stored, decoded);
      const std::vector<float> ours = DecodeModelRow(type, stored);
      for (size_t i = 0; i < 64; ++i) {
        ASSERT_EQ(CanonicalBits(ours[i]), CanonicalBits(decoded[i])) << RowTypeName(type);
      }
    }
  }
}

// Blocks that another program may have written: any codes, any scale.
TEST(ModelRowsTest, AnyStoredBytesAreDecodedAlike) {
  Random random(8);
  for (int round = 0; round < 3000; ++round) {
    for (const RowType type : {RowType::kQ8_0, RowType::kQ4_0}) {
      std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, 32)));
      for (std::byte& byte : stored) byte = static_cast<std::byte>(random.Below(256));
      std::vector<float> decoded(32);
      DecodeRow(type, stored, decoded);
      const std::vector<float> ours = DecodeModelRow(type, stored);
      for (size_t i = 0; i < 32; ++i) {
        ASSERT_EQ(CanonicalBits(ours[i]), CanonicalBits(decoded[i])) << RowTypeName(type);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::oracle
