// Clause Q4 of caches/CONTRACT.md: the block formats to the bit.
#include "caches/codec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "caches/random.h"

namespace lockstep {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Block = std::array<float, 32>;

// Zeros but for the elements named.
Block Sparse(std::initializer_list<std::pair<size_t, float>> elements) {
  Block block{};
  for (const auto& [index, value] : elements) block.at(index) = value;
  return block;
}

Block Filled(float value) {
  Block block;
  block.fill(value);
  return block;
}

std::vector<std::byte> Encode(RowType type, std::span<const float> row) {
  std::vector<std::byte> stored(
      static_cast<size_t>(RowBytes(type, static_cast<int64_t>(row.size()))));
  EncodeRow(type, row, stored);
  return stored;
}

std::vector<float> Decode(RowType type, std::span<const std::byte> stored, size_t elements) {
  std::vector<float> row(elements);
  DecodeRow(type, stored, row);
  return row;
}

std::vector<float> RoundTrip(RowType type, std::span<const float> row) {
  return Decode(type, Encode(type, row), row.size());
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string hex;
  for (std::byte b : bytes) hex += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return hex;
}

struct Golden {
  std::string_view name;
  Block block;
  std::string_view q8_0;  // 34 bytes in hex
  std::string_view q4_0;  // 18 bytes in hex
};

// 0.37f * (i - 11), rounded: nothing special about it.
Block Ramp() {
  Block block;
  for (size_t i = 0; i < block.size(); ++i) block[i] = 0.37f * (static_cast<float>(i) - 11.0f);
  return block;
}

// One block of blk.0.attn_output.weight of the 260K TinyStories model zero-padded to dimension
// 256; the expected bytes below are what llama.cpp's own quantizer made of it.
Block RealWeights() {
  constexpr std::array<uint32_t, 32> kBits = {
      0x3e0a394c, 0x3d897569, 0x3de662e4, 0x3dcdd6ed, 0x3d041574, 0x3daf62d4, 0xbbaafcfe,
      0x3cdd929c, 0xbca7188b, 0xbd5d957f, 0xbc7b9fd7, 0x3e13d0e2, 0xbd6993ca, 0x3e2b7f9d,
      0x3d9d12dd, 0xbe01f541, 0x3d63f5d1, 0xba132bdd, 0xbd1797fe, 0xbcb243a5, 0xbc9c20e9,
      0xbcd98857, 0xbc5705dd, 0xbdf116dc, 0xbd8ae46f, 0xbe425e94, 0xbd989bd8, 0x3d82740f,
      0xbda3f977, 0x3dae62e2, 0xbe0ba763, 0xbda88d7c};
  Block block;
  for (size_t i = 0; i < block.size(); ++i) block[i] = std::bit_cast<float>(kBits[i]);
  return block;
}

constexpr std::string_view kZeroQ8 =
    "00000000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view kZeroQ4 = "000088888888888888888888888888888888";
constexpr std::string_view kNanQ8 =
    "007e0000000000000000000000000000000000000000000000000000000000000000";
constexpr std::string_view kNanQ4 = "007e88888888888888888888888888888888";

// The bytes of all were computed apart from codec.cc, in exact rational arithmetic.
std::vector<Golden> OrdinaryBlocks() {
  return {
      {"real weights", RealWeights(),
       "1f165a2d4b431639fd12f2dcf661da7033ab2500e7f1f3eef7b1d381ce2bca39a5c9",
       "1326ae8b6d7c797c7839570657be56cf2b53"},
      {"ramp", Ramp(), "752bbac0c7cdd4dae0e7edf3fa00060d131920262c333940464c53595f666c72797f",
       "66bb6c6c5c5b4b4a4a3a3929282818170706"},
      {"ties of Q8_0",
       Sparse({{0, 127},
               {1, .5f},
               {2, 1.5f},
               {3, 2.5f},
               {4, -.5f},
               {5, -1.5f},
               {6, -2.5f},
               {7, 126.5f},
               {8, -126.5f},
               {31, -127}}),
       "003c7f010203fffefd7f810000000000000000000000000000000000000000000081",
       "f0cb80888888888888808f888888888888f8"},
      {"ties of Q4_0",
       Sparse({{0, -8},
               {1, -7.5f},
               {2, -7},
               {3, -6.5f},
               {4, -.5f},
               {5, .5f},
               {6, 6.5f},
               {7, 7.5f},
               {8, 8},
               {16, -.5f},
               {17, 1.5f},
               {31, 2.5f}}),
       "082c81899199f80867777f00000000000000f8180000000000000000000000000028",
       "003c80a1818288898f8f8f888888888888b8"},
      {"equal magnitudes, the first is positive",
       Sparse({{0, 4}, {3, 8}, {5, -8}, {16, 7.5f}, {20, -7.5f}, {31, -1}}),
       "082c4000007f008100000000000000000000770000008900000000000000000000f0",
       "00bc14888880f88f88888888888888888898"},
      {"equal magnitudes, the first is negative",
       Sparse({{0, 4}, {3, -8}, {5, 8}, {16, 7.5f}, {20, -7.5f}, {31, -1}}),
       "082c40000081007f00000000000000000000770000008900000000000000000000f0",
       "003cfc888880188f88888888888888888878"},
      {"a scale that is subnormal as F16",
       Sparse({{0, 127.0f / (1 << 20)}, {1, -63.5f / (1 << 20)}, {2, 1.0f / (1 << 20)}}),
       "10007fc0010000000000000000000000000000000000000000000000000000000000",
       "fe80808c8888888888888888888888888888"},
      {"a code that 127/amax, x/d and amax*(1/127) all round otherwise",
       Sparse({{0, 0x1.7ed4d6p+0f}, {8, 0x1.60afecp-1f}, {17, -0x1.60afecp-1f}}),
       "07227f000000000000003a0000000000000000c60000000000000000000000000000",
       "fbb180c88888888888888488888888888888"},
      {"a Q4_0 code that x/d rounds otherwise",
       Sparse({{0, 0x1.c46472p+0f}, {9, 0x1.8bd7e6p-1f}, {17, -0x1.8bd7e6p-1f}}),
       "20237f00000000000000003800000000000000c80000000000000000000000000000",
       "12b380c88888888888888884888888888888"},
  };
}

std::vector<Golden> ZeroAndTinyBlocks() {
  const float least8 = 127.0f / (1 << 25);  // the largest amax whose Q8_0 scale is zero as F16
  const float least4 = 8.0f / (1 << 25);
  const float more = 1.0f + 1.0f / (1 << 22);
  return {
      {"zero", Filled(0.0f), kZeroQ8, kZeroQ4},
      {"negative zero", Filled(-0.0f), kZeroQ8, kZeroQ4},
      {"tiny for Q8_0", Sparse({{2, least8}, {3, -1e-6f}}), kZeroQ8,
       "08808888808a888888888888888888888888"},
      {"least for Q8_0", Sparse({{2, least8 * more}, {3, -1e-6f}, {9, 2e-6f}}),
       "010000007fde00000000004300000000000000000000000000000000000000000000",
       "08808888808a888888888884888888888888"},
      {"tiny for Q4_0", Sparse({{2, least4}, {3, -1e-7f}}), kZeroQ8, kZeroQ4},
      {"least for Q4_0", Sparse({{2, least4 * more}, {3, -1e-7f}}), kZeroQ8,
       "01808888808b888888888888888888888888"},
      {"a reciprocal that would overflow", Sparse({{1, 1e-37f}, {30, -1e-38f}}), kZeroQ8, kZeroQ4},
      {"subnormal", Sparse({{7, std::numeric_limits<float>::denorm_min()}}), kZeroQ8, kZeroQ4},
  };
}

std::vector<Golden> HugeAndNonFiniteBlocks() {
  return {
      {"largest ordinary scale", Sparse({{0, 127 * 65519.0f}, {1, -65504}, {2, 1e6f}}),
       "ff7b7fff0f0000000000000000000000000000000000000000000000000000000000",
       "fffb80898088888888888888888888888888"},
      {"just outside the largest code",
       Sparse({{0, 127.75f * 65504}, {1, -127.75f * 65504}, {2, 127.25f * 65504}}),
       "ff7b7f817f0000000000000000000000000000000000000000000000000000000000",
       "fffb808f8088888888888888888888888888"},
      {"huge",
       Sparse({{0, 1e7f},
               {1, -1e7f},
               {2, 127 * 65504.0f},
               {3, 65504},
               {4, -32752},
               {5, 1},
               {31, kMax}}),
       "ff7b7f817f01ff00000000000000000000000000000000000000000000000000007f",
       "fffb808f8087898888888888888888888808"},
      {"huge for Q4_0, positive",
       Sparse({{0, 1e6f},
               {1, -1e6f},
               {2, 65504},
               {3, 32752},
               {4, -65504},
               {5, 1},
               {31, 7 * 65504.0f}}),
       "b16f7f810804f800000000000000000000000000000000000000000000000000003a",
       "fffb808f8788898888888888888888888818"},
      {"huge, negative", Sparse({{0, -kMax}, {1, 1e6f}, {2, 65504}, {31, -7 * 65504.0f}}),
       "ff7b810f0100000000000000000000000000000000000000000000000000000000f9",
       "ff7b808f8988888888888888888888888818"},
      {"a NaN, last", Sparse({{0, 1}, {31, kNan}}), kNanQ8, kNanQ4},
      {"a NaN, first", Sparse({{0, -kNan}, {1, 1}}), kNanQ8, kNanQ4},
      {"infinity", Sparse({{0, kInfinity}, {1, 1}}), kNanQ8, kNanQ4},
      {"minus infinity", Sparse({{17, -kInfinity}, {1, kMax}}), kNanQ8, kNanQ4},
  };
}

TEST(CodecTest, Q4GoldenBytes) {
  for (const auto& goldens : {OrdinaryBlocks(), ZeroAndTinyBlocks(), HugeAndNonFiniteBlocks()}) {
    for (const Golden& golden : goldens) {
      EXPECT_EQ(Hex(Encode(RowType::kQ8_0, golden.block)), golden.q8_0) << golden.name;
      EXPECT_EQ(Hex(Encode(RowType::kQ4_0, golden.block)), golden.q4_0) << golden.name;
    }
  }
}

// V2: a row of zeros reads +0.0f, whatever the format's own zero would be.
TEST(CodecTest, V2ZeroAndTinyRowsDecodeToPositiveZero) {
  for (RowType type : {RowType::kQ8_0, RowType::kQ4_0}) {
    for (const Block& block : {Filled(0.0f), Filled(-0.0f), Filled(-1e-9f)}) {
      for (float x : RoundTrip(type, block)) EXPECT_EQ(std::bit_cast<uint32_t>(x), 0u);
    }
  }
}

TEST(CodecTest, Q4HugeRowsSaturateAndStayFinite) {
  const auto q8 = RoundTrip(RowType::kQ8_0, Sparse({{0, kMax}, {1, -kMax}, {2, 65504}}));
  EXPECT_EQ(q8[0], 127 * 65504.0f);
  EXPECT_EQ(q8[1], -127 * 65504.0f);
  EXPECT_EQ(q8[2], 65504.0f);
  EXPECT_EQ(q8[3], 0.0f);
  const auto q4 = RoundTrip(RowType::kQ4_0, Sparse({{0, -kMax}, {1, kMax}, {2, -65504}}));
  EXPECT_EQ(q4[0], -8 * 65504.0f);
  EXPECT_EQ(q4[1], 7 * 65504.0f);
  EXPECT_EQ(q4[2], -65504.0f);
}

TEST(CodecTest, Q4NonFiniteBlocksReadNanButTheirNeighboursDoNot) {
  for (RowType type : {RowType::kQ8_0, RowType::kQ4_0}) {
    std::vector<float> row(96, 1.0f);
    row[40] = -kInfinity;
    const auto back = RoundTrip(type, row);
    for (size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(std::isnan(back[i]), i / 32 == 1) << RowTypeName(type) << " element " << i;
    }
  }
}

TEST(CodecTest, DecodesEveryCodeByDefinition) {
  std::array<std::byte, 34> q8{};
  q8[0] = std::byte{0x01};
  q8[1] = std::byte{0xc2};  // F16 0xc201: -3.001953125
  for (int start = -128; start < 128; start += 32) {
    for (int i = 0; i < 32; ++i) q8[static_cast<size_t>(i) + 2] = static_cast<std::byte>(start + i);
    const auto row = Decode(RowType::kQ8_0, q8, 32);
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(row[static_cast<size_t>(i)], static_cast<float>(start + i) * -3.001953125f);
    }
  }
  std::array<std::byte, 18> q4{};
  q4[0] = q8[0];
  q4[1] = q8[1];
  for (unsigned i = 0; i < 16; ++i) q4[i + 2] = static_cast<std::byte>(i | (15 - i) << 4);
  const auto row = Decode(RowType::kQ4_0, q4, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(row[static_cast<size_t>(i)], static_cast<float>(i - 8) * -3.001953125f);
    EXPECT_EQ(row[static_cast<size_t>(i) + 16], static_cast<float>(7 - i) * -3.001953125f);
  }
}

TEST(CodecTest, F32F16AndBf16RowsComeBack) {
  std::vector<float> row = {1.5f, -0.0f, 65504.0f, 0x1p-24f, -2.0f};
  EXPECT_EQ(RoundTrip(RowType::kF16, row), row);
  EXPECT_EQ(Hex(Encode(RowType::kF16, row)), "003e0080ff7b010000c0");
  EXPECT_EQ(Hex(Encode(RowType::kBf16, row)), "c03f00808047803300c0");
  EXPECT_EQ(RoundTrip(RowType::kBf16, row),
            (std::vector<float>{1.5f, -0.0f, 0x1p16f, 0x1p-24f, -2}));
  row[0] = kNan;
  const auto back = RoundTrip(RowType::kF32, row);
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(row[i]));
  }
}

// A float of any exponent from 2^-40 to 2^25, any mantissa.
float AnyFloat(Random* random) {
  const uint32_t exponent = static_cast<uint32_t>(random->Between(127 - 40, 127 + 25));
  return std::bit_cast<float>((random->Below(2) << 31) | exponent << 23 | random->Below(1u << 23));
}

Block AnyBlock(Random* random) {
  const float scale = AnyFloat(random);
  Block block;
  for (float& x : block) {
    x = scale * (static_cast<float>(random->Between(-1000000, 1000000)) / 1000000.0f);
  }
  return block;
}

// Half a code step, plus what rounding the scale to F16 can move the largest code by. Q4_0 has no
// code +8: an element at the far end loses a whole step.
TEST(CodecTest, Q4ErrorIsBoundedByTheScale) {
  Random random(20240229);
  for (int round = 0; round < 20000; ++round) {
    const Block block = AnyBlock(&random);
    double amax = 0;
    for (float x : block) amax = std::max(amax, std::fabs(static_cast<double>(x)));
    const auto q8 = RoundTrip(RowType::kQ8_0, block);
    const auto q4 = RoundTrip(RowType::kQ4_0, block);
    const auto bound = [&](double d, double steps, double codes) {
      if (d <= 0x1p-25) return codes * 0x1p-25;  // stored as zero
      const double rounding = std::max(d * 0x1p-11, 0x1p-25);
      return (d * steps + codes * rounding) * (1 + 1e-6);
    };
    const double bound8 = bound(amax / 127, 0.5, 127);
    const double bound4 = bound(amax / 8, 1.0, 8);
    for (size_t i = 0; i < block.size(); ++i) {
      if (amax / 127 < 65504) {
        ASSERT_LE(std::fabs(static_cast<double>(q8[i]) - block[i]), bound8) << block[i];
      }
      if (amax / 8 < 65504) {
        ASSERT_LE(std::fabs(static_cast<double>(q4[i]) - block[i]), bound4) << block[i];
      }
    }
  }
}

// Any bits at all: defined, deterministic, finite in means finite out.
TEST(CodecTest, Q4AnyBitsEncodeWithoutTrapsAndNonFiniteMeansNan) {
  Random random(5);
  for (int round = 0; round < 20000; ++round) {
    Block block;
    bool finite = true;
    for (float& x : block) {
      x = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
      if (round % 2 == 0 && !std::isfinite(x)) x = kMax;
      finite = finite && std::isfinite(x);
    }
    for (RowType type : {RowType::kQ8_0, RowType::kQ4_0}) {
      for (float x : RoundTrip(type, block)) ASSERT_EQ(std::isnan(x), !finite);
    }
  }
}

// Odd block counts leave rows 2-byte aligned; nothing outside the row may be touched.
TEST(CodecTest, Q4RowsAreTheirBlocksOneAfterAnother) {
  Random random(11);
  for (RowType type : {RowType::kQ8_0, RowType::kQ4_0}) {
    for (size_t blocks : {0u, 1u, 2u, 3u, 5u}) {
      std::vector<float> row;
      std::string expected = "5a";
      for (size_t b = 0; b < blocks; ++b) {
        const Block block = AnyBlock(&random);
        row.insert(row.end(), block.begin(), block.end());
        expected += Hex(Encode(type, block));
      }
      expected += "5a";
      const size_t bytes = static_cast<size_t>(RowBytes(type, static_cast<int64_t>(row.size())));
      std::vector<std::byte> guarded(bytes + 2, std::byte{0x5a});
      EncodeRow(type, row, std::span(guarded).subspan(1, bytes));
      EXPECT_EQ(Hex(guarded), expected) << RowTypeName(type) << " x " << blocks;

      std::vector<float> back(row.size() + 2, 7.0f);
      DecodeRow(type, std::span(guarded).subspan(1, bytes), std::span(back).subspan(1, row.size()));
      EXPECT_EQ(back.front(), 7.0f);
      EXPECT_EQ(back.back(), 7.0f);
      EXPECT_EQ(std::vector<float>(back.begin() + 1, back.end() - 1), RoundTrip(type, row));
    }
  }
}

TEST(CodecDeathTest, WrongSizesAreBugsOfTheHarness) {
  std::vector<float> row(33);
  std::vector<std::byte> stored(34);
  EXPECT_DEATH(EncodeRow(RowType::kQ8_0, row, stored), "q8_0 row of 33 elements");
  row.resize(32);
  stored.resize(33);
  EXPECT_DEATH(DecodeRow(RowType::kQ8_0, stored, row), "in 33 bytes");
}

}  // namespace
}  // namespace lockstep
