// PackedMatrix and DecodeWeights: layout, exact decoding, refusals.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "caches/digest.h"
#include "caches/error.h"
#include "engine/kernels.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/quant_block.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/test_inputs.h"

namespace lockstep {
namespace {

using kernels_test::BlockQuant;
using kernels_test::FloatElement;
using kernels_test::HalfToFloat;
using kernels_test::LoadHalf;
using kernels_test::RandomWeights;

TEST(DecodeWeightsTest, EveryHalf) {
  std::vector<std::byte> halves;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    kernels_test::AppendU16(static_cast<uint16_t>(bits), &halves);
  }
  std::vector<float> f16(65536), bf16(65536);
  DecodeWeights(GgmlType::kF16, halves, f16);
  DecodeWeights(GgmlType::kBF16, halves, bf16);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    ASSERT_EQ(CanonicalBits(f16[bits]), CanonicalBits(HalfToFloat(static_cast<uint16_t>(bits))))
        << bits;
    ASSERT_EQ(CanonicalBits(bf16[bits]), CanonicalBits(std::bit_cast<float>(bits << 16))) << bits;
  }
}

TEST(DecodeWeightsTest, FloatsAndBlocks) {
  Random random(41);
  for (GgmlType type :
       {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_0}) {
    const bool q8 = type == GgmlType::kQ8_0;
    const bool block = q8 || type == GgmlType::kQ4_0;
    const auto bytes = RandomWeights(type, 96, &random);
    std::vector<float> out(96);
    DecodeWeights(type, bytes, out);
    for (int i = 0; i < 96; ++i) {
      float expected;
      if (block) {
        const std::byte* at = bytes.data() + i / 32 * (q8 ? 34 : 18);
        expected = static_cast<float>(BlockQuant(q8, at, i % 32)) * HalfToFloat(LoadHalf(at));
      } else {
        expected = FloatElement(type, bytes.data(), i);
      }
      EXPECT_EQ(expected, out[static_cast<size_t>(i)]) << TraitsOf(type)->name << " " << i;
    }
  }
}

TEST(DecodeWeightsTest, ABlockWithAnInfiniteScaleFollowsIeee) {
  std::vector<std::byte> block(34, std::byte{0});
  block[1] = std::byte{0x7c};
  block[2 + 5] = std::byte{0xff};  // -1
  std::vector<float> out(32);
  DecodeWeights(GgmlType::kQ8_0, block, out);
  EXPECT_TRUE(out[0] != out[0]) << "0 * infinity";
  EXPECT_EQ(out[5], -std::numeric_limits<float>::infinity());
}

TEST(PackedMatrixTest, BytesLieWhereTheLayoutSays) {
  constexpr int32_t kRows = 18, kCols = 96;  // a pair of blocks and an odd one
  Random random(42);
  for (GgmlType type : {GgmlType::kQ8_0, GgmlType::kQ4_0}) {
    const bool q8 = type == GgmlType::kQ8_0;
    const auto bytes = RandomWeights(type, int64_t{kRows} * kCols, &random);
    const PackedMatrix w(type, kRows, kCols, bytes);
    EXPECT_EQ(w.groups(), 2);
    const int64_t lines_bytes = q8 ? 512 : 256;  // of one block
    const int64_t pair_bytes = 64 + 2 * lines_bytes;
    EXPECT_EQ(w.group_bytes(), pair_bytes + 64 + lines_bytes);
    for (int32_t row = 0; row < kRows; ++row) {
      for (int32_t k = 0; k < kCols; ++k) {
        const std::byte* file = bytes.data() + (row * 3 + k / 32) * (q8 ? 34 : 18);
        const std::byte* pair = w.data() + row / 16 * w.group_bytes() + k / 64 * pair_bytes;
        const bool second = k / 32 % 2 != 0;
        const int r = row % 16, i = k % 32;
        EXPECT_EQ(LoadHalf(pair + (second ? 32 : 0) + 2 * r), LoadHalf(file));
        const std::byte* lines = pair + 64 + (second ? lines_bytes : 0);
        const int lane = i % (q8 ? 32 : 16);
        const int byte = std::to_integer<int>(lines[lane / 4 * 64 + 4 * r + lane % 4]);
        const int quant = q8 ? byte - 128 : (i < 16 ? byte & 15 : byte >> 4) - 8;
        EXPECT_EQ(quant, BlockQuant(q8, file, i)) << "row " << row << ", k " << k;
      }
    }
  }
  const auto bytes = RandomWeights(GgmlType::kF16, 18 * 3, &random);
  const PackedMatrix w(GgmlType::kF16, 18, 3, bytes);
  EXPECT_EQ(w.group_bytes(), 96);
  for (int32_t row = 0; row < 18; ++row) {
    for (int32_t k = 0; k < 3; ++k) {
      EXPECT_EQ(LoadHalf(w.data() + 64 * k + 2 * row), LoadHalf(bytes.data() + 2 * (row * 3 + k)));
    }
  }
}

// quant_layout.h in numbers: planes, blocks of a unit, lines of its head.
struct Layout {
  GgmlType type;
  int low_bits, high_bits, unit_blocks, head_lines;
  bool lows, super;
};
constexpr Layout kLayouts[] = {
    {GgmlType::kQ4_1, 4, 0, 1, 1, true, false},  {GgmlType::kQ5_0, 4, 1, 2, 1, false, false},
    {GgmlType::kQ5_1, 4, 1, 1, 1, true, false},  {GgmlType::kIQ4_NL, 4, 0, 2, 1, false, false},
    {GgmlType::kQ2_K, 2, 0, 8, 5, true, true},   {GgmlType::kQ3_K, 2, 1, 8, 5, false, true},
    {GgmlType::kQ4_K, 4, 0, 8, 5, true, true},   {GgmlType::kQ5_K, 4, 1, 8, 5, true, true},
    {GgmlType::kQ6_K, 4, 2, 8, 5, false, true},  {GgmlType::kIQ4_XS, 4, 0, 8, 3, false, true},
    {GgmlType::kQ8_0, 8, 0, 2, 1, false, false}, {GgmlType::kQ4_0, 4, 0, 2, 1, false, false},
};

// The code of k = i of row r in lines from `at` on.
int CodeIn(const Layout& l, const std::byte* at, int r, int i) {
  const auto byte = [&](int line) { return std::to_integer<int>(at[64 * line + 4 * r + i % 4]); };
  const auto two_bits = [&](int line) { return byte(line + i / 16) >> 2 * (i % 16 / 4) & 3; };
  const int low = l.low_bits == 8   ? byte(i / 4)
                  : l.low_bits == 4 ? byte(i % 16 / 4) >> 4 * (i / 16) & 15
                                    : two_bits(0);
  if (l.high_bits == 0) return low;
  const int high = l.high_bits == 2 ? two_bits(l.low_bits) : byte(l.low_bits) >> i / 4 & 1;
  return low | high << l.low_bits;
}

// The head of row r's block b: what lies there, against the block as stored.
void CheckHead(const Layout& l, const std::byte* unit, int b, int r,
               const internal::QuantBlock& block) {
  const std::byte* halves = unit + (l.unit_blocks == 2 ? b % 2 * 32 : 0) + 2 * r;
  EXPECT_EQ(LoadHalf(halves), block.scale);
  if (l.lows) {
    EXPECT_EQ(LoadHalf(halves + 32), block.low);
  }
  if (!l.super) return;
  const int part = b % 8;
  const auto bytes = [&](int a_block, int which) {
    return std::to_integer<int>(unit[(l.lows ? 64 : 32) + a_block * part + 16 * which + r]);
  };
  const auto scale = [&](int s) { return static_cast<uint8_t>(block.scales[s]); };
  switch (l.type) {
    case GgmlType::kIQ4_XS:
      EXPECT_EQ(bytes(16, 0), scale(part));
      break;
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
      EXPECT_EQ(bytes(32, 0), scale(part));
      EXPECT_EQ(bytes(32, 1), block.lows[part]);
      break;
    default:
      for (int half = 0; half < 2; ++half) {
        const int low = l.lows ? block.lows[2 * part + half] : 0;
        EXPECT_EQ(bytes(32, half), scale(2 * part + half) | low << 4);
      }
  }
}

TEST(PackedMatrixTest, QuantizedBytesLieWhereTheFormSays) {
  constexpr int kRows = 18;
  Random random(44);
  for (const Layout& l : kLayouts) {
    SCOPED_TRACE(TraitsOf(l.type)->name);
    const GgmlTypeTraits traits = *TraitsOf(l.type);
    const int cols = l.super ? 768 : 96;  // the last unit of pairs has one block
    const auto bytes = RandomWeights(l.type, int64_t{kRows} * cols, &random);
    const PackedMatrix w(l.type, kRows, cols, bytes);
    const int block_lines = l.low_bits + l.high_bits;
    const int units = (cols / 32 + l.unit_blocks - 1) / l.unit_blocks;
    EXPECT_EQ(w.group_bytes(), 64 * (units * l.head_lines + cols / 32 * block_lines));
    for (int row = 0; row < kRows; ++row) {
      const std::byte* group = w.data() + row / 16 * w.group_bytes();
      for (int b = 0; b < cols / 32; ++b) {
        const int64_t stored = (row * cols + b * 32) / traits.block_elements;
        internal::QuantBlock block;
        internal::ReadQuantBlock(l.type,
                                 reinterpret_cast<const uint8_t*>(
                                     &bytes[static_cast<size_t>(stored * traits.block_bytes)]),
                                 &block);
        const std::byte* unit =
            group + 64 * (b / l.unit_blocks * (l.head_lines + l.unit_blocks * block_lines));
        CheckHead(l, unit, b, row % 16, block);
        const std::byte* lines = unit + 64 * (l.head_lines + b % l.unit_blocks * block_lines);
        for (int i = 0; i < 32; ++i) {
          ASSERT_EQ(CodeIn(l, lines, row % 16, i),
                    block.codes[(b * 32) % static_cast<int>(traits.block_elements) + i]);
        }
      }
    }
  }
}

TEST(PackedMatrixTest, GroupsAreAlignedAndMovable) {
  Random random(43);
  PackedMatrix w(GgmlType::kQ8_0, 40, 32, RandomWeights(GgmlType::kQ8_0, 40 * 32, &random));
  const std::byte* before = w.data();
  const PackedMatrix moved = std::move(w);
  EXPECT_EQ(moved.data(), before);
  for (int32_t g = 0; g < moved.groups(); ++g) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(moved.data() + g * moved.group_bytes()) % 64, 0u);
  }
  static_assert(!std::is_copy_constructible_v<PackedMatrix>);
}

// Beyond what 32 bits count: the head of a vocabulary of 256 Ki rows of 4096 halves has 2^31 bytes.
TEST(PackedMatrixTest, OffsetsAre64Bit) {
  constexpr int64_t kGroupBytes = int64_t{4096} * internal::kLineBytes;
  constexpr int64_t kGroup = 16384;
  EXPECT_EQ(internal::GroupAt(false, kGroup, kGroupBytes), kGroup * kGroupBytes);
  EXPECT_EQ(internal::GroupAt(true, kGroup, kGroupBytes / 2), kGroup * kGroupBytes / 2);
  EXPECT_EQ(internal::GroupAt(true, kGroup + 1, kGroupBytes / 2),
            kGroup * kGroupBytes / 2 + internal::kScaleBytes);
  EXPECT_EQ(internal::QuantGroupBytes(internal::FormatOf(GgmlType::kQ8_0), int64_t{1} << 26),
            (int64_t{1} << 25) * 17 * internal::kLineBytes);
  EXPECT_EQ(PackedMatrix::PackedBytes(GgmlType::kF32, 1 << 18, 4096), int64_t{1} << 32);
}

TEST(PackedMatrixTest, Refusals) {
  const std::vector<std::byte> bytes(34 * 4);
  for (int32_t cols : {31, 33, 48}) {
    EXPECT_THROW(PackedMatrix(GgmlType::kQ8_0, 1, cols, bytes), Error) << cols;
    EXPECT_THROW(PackedMatrix(GgmlType::kQ4_0, 1, cols, bytes), Error) << cols;
    EXPECT_THROW(PackedMatrix(GgmlType::kQ5_1, 1, cols, bytes), Error) << cols;
    EXPECT_THROW(PackedMatrix(GgmlType::kQ4_K, 1, 2 * cols + 128, bytes), Error) << cols;
  }
  EXPECT_THROW(PackedMatrix(static_cast<GgmlType>(9999), 1, 32, bytes), Error);
  EXPECT_DEATH(PackedMatrix(GgmlType::kQ8_0, 5, 32, bytes), "136 bytes for 5 x 32");
  EXPECT_DEATH(PackedMatrix(GgmlType::kQ8_0, 0, 32, bytes), "matrix of 0 x 32");
  std::vector<float> out(33);
  EXPECT_DEATH(DecodeWeights(GgmlType::kQ8_0, bytes, out), "136 bytes for 33 weights");
}

}  // namespace
}  // namespace lockstep
