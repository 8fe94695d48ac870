// matmul against a plain reference in the words of engine/ARITHMETIC.md, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "caches/digest.h"
#include "caches/error.h"
#include "engine/kernels.h"
#include "engine/kernels/quant_block.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/test_inputs.h"

namespace lockstep {
namespace {

using kernels_test::FloatElement;
using kernels_test::HalfToFloat;
using kernels_test::MakeActivations;
using kernels_test::Multiply;
using kernels_test::OwnedActivations;
using kernels_test::RandomValues;
using kernels_test::RandomWeights;

constexpr GgmlType kTypes[] = {
    GgmlType::kF32,  GgmlType::kF16,  GgmlType::kBF16, GgmlType::kQ8_0,   GgmlType::kQ4_0,
    GgmlType::kQ4_1, GgmlType::kQ5_0, GgmlType::kQ5_1, GgmlType::kQ2_K,   GgmlType::kQ3_K,
    GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K, GgmlType::kIQ4_NL, GgmlType::kIQ4_XS};
constexpr float kCanary = -0x1.abcdp+100f;

// ((p0 + p1) + p2) + ...
float AddInOrder(const std::vector<float>& partials) {
  float sum = partials[0];
  for (size_t i = 1; i < partials.size(); ++i) sum = sum + partials[i];
  return sum;
}

int64_t RowBytes(GgmlType type, int32_t cols) {
  const GgmlTypeTraits traits = *TraitsOf(type);
  return cols / traits.block_elements * traits.block_bytes;
}

// Numbers that fit several whole blocks, and those of the type.
bool HasWholeBlocks(GgmlType type, int32_t cols) {
  return cols % TraitsOf(type)->block_elements == 0;
}

// A row of a quantized matrix in plain numbers.
struct PlainRow {
  int32_t sub_block = 32;
  std::vector<int> integers;        // [cols]
  std::vector<float> scales, lows;  // [cols / sub_block]; lows: empty where the type has none
};

PlainRow ReadRow(GgmlType type, const std::byte* row, int32_t cols) {
  const internal::QuantFormat f = internal::FormatOf(type);
  const GgmlTypeTraits traits = *TraitsOf(type);
  PlainRow plain;
  plain.sub_block = f.sub_block;
  for (int64_t b = 0; b < cols / traits.block_elements; ++b) {
    internal::QuantBlock block;
    internal::ReadQuantBlock(type, reinterpret_cast<const uint8_t*>(row + b * traits.block_bytes),
                             &block);
    for (int64_t i = 0; i < traits.block_elements; ++i) {
      const int code = f.table ? internal::kIq4Table[block.codes[i]] : block.codes[i];
      plain.integers.push_back(code - f.bias);
    }
    const float d = HalfToFloat(block.scale), l = f.lows ? HalfToFloat(block.low) : 0;
    for (int64_t s = 0; s < traits.block_elements / f.sub_block; ++s) {
      plain.scales.push_back(f.super ? d * static_cast<float>(block.scales[s]) : d);
      if (f.lows) plain.lows.push_back(f.super ? -(l * static_cast<float>(block.lows[s])) : l);
    }
  }
  return plain;
}

// One output of one token.
float ReferenceDot(GgmlType type, const std::byte* row, const OwnedActivations& x, int32_t token) {
  std::vector<float> partials;
  if (!IsQuantized(type)) {
    for (int32_t k = 0; k < x.cols; ++k) {
      if (k % 256 == 0) partials.push_back(0.0f);
      const float xk = x.values[static_cast<size_t>(token * x.cols + k)];
      partials.back() = std::fma(FloatElement(type, row, k), xk, partials.back());
    }
    return AddInOrder(partials);
  }
  const PlainRow w = ReadRow(type, row, x.cols);
  for (int32_t begin = 0; begin < x.cols; begin += w.sub_block) {
    if (begin % 256 == 0) partials.push_back(0.0f);
    const auto& block = x.blocks[static_cast<size_t>(token * (x.cols / 32) + begin / 32)];
    int64_t dot = 0, sum = 0;
    for (int32_t k = begin; k < begin + w.sub_block; ++k) {
      dot += int64_t{w.integers[static_cast<size_t>(k)]} * block.quants[k % 32];
      sum += block.quants[k % 32];
    }
    const auto s = static_cast<size_t>(begin / w.sub_block);
    partials.back() = std::fma(static_cast<float>(dot), w.scales[s] * block.scale, partials.back());
    if (w.lows.empty()) continue;
    partials.back() = std::fma(w.lows[s], static_cast<float>(sum) * block.scale, partials.back());
  }
  return AddInOrder(partials);
}

void ExpectSameBits(float expected, float actual, const std::string& where) {
  EXPECT_EQ(CanonicalBits(expected), CanonicalBits(actual))
      << where << ": expected " << expected << ", got " << actual;
}

class MatmulTest : public testing::TestWithParam<std::tuple<const KernelTable*, GgmlType>> {
 protected:
  const KernelTable& kernels() const { return *std::get<0>(GetParam()); }
  GgmlType type() const { return std::get<1>(GetParam()); }
};

// Every output of w times x against the reference, and nothing beside them.
void CheckMatmul(const KernelTable& kernels, GgmlType type, int32_t rows, int32_t cols,
                 int32_t tokens, Random* random) {
  const auto bytes = RandomWeights(type, int64_t{rows} * cols, random);
  const PackedMatrix w(type, rows, cols, bytes);
  const auto x = MakeActivations(kernels, tokens, cols,
                                 RandomValues(static_cast<size_t>(tokens * cols), random));
  const int64_t stride = rows + 5;
  std::vector<float> y(static_cast<size_t>(tokens * stride), kCanary);
  Multiply(kernels, w, x.Get(), 0, w.groups(), y.data(), stride);
  for (int32_t t = 0; t < tokens; ++t) {
    for (int32_t r = 0; r < stride; ++r) {
      const float expected =
          r < rows ? ReferenceDot(type, bytes.data() + r * RowBytes(type, cols), x, t) : kCanary;
      ExpectSameBits(expected, y[static_cast<size_t>(t * stride + r)],
                     fmt::format("{} x {}, token {} of {}, row {}", rows, cols, t, tokens, r));
    }
  }
}

// A product that writes one output too many, for each token.
void WriteBehindTheRow(const PackedMatrix& w, const Activations& x, int32_t group_begin,
                       int32_t group_end, float* const* y) {
  SelectKernels("scalar").matmul(w, x, group_begin, group_end, y);
  for (int32_t t = 0; t < x.tokens; ++t) y[t][w.rows()] = 0.0f;
}

TEST(MatmulCheckTest, SeesAWriteBehindTheRow) {
  KernelTable kernels = SelectKernels("scalar");
  kernels.matmul = &WriteBehindTheRow;
  Random random(4);
  EXPECT_NONFATAL_FAILURE(CheckMatmul(kernels, GgmlType::kF32, 17, 32, 1, &random), "row 17");
}

class QuantizedMatmulTest : public MatmulTest {};

TEST_P(MatmulTest, EqualsThePlainReferenceAndWritesNothingElse) {
  Random random(1);
  for (int32_t cols : kernels_test::kMatMulCols) {
    if (!HasWholeBlocks(type(), cols)) continue;
    for (int32_t rows : kernels_test::kMatMulRows) {
      for (int32_t tokens : kernels_test::kFewTokens) {
        if (rows == 172 && tokens % 4 != 1) continue;
        CheckMatmul(kernels(), type(), rows, cols, tokens, &random);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

// Tiles of every size, with an even and an odd number of groups, and more tokens than one pass over
// the weights takes.
TEST_P(MatmulTest, AnyNumberOfTokens) {
  Random random(3);
  for (int32_t tokens = 13; tokens <= 26; ++tokens) {
    const int32_t cols = HasWholeBlocks(type(), 288) ? 288 : 512;
    CheckMatmul(kernels(), type(), tokens % 2 == 0 ? 33 : 64, cols, tokens, &random);
    ASSERT_FALSE(HasFailure());
  }
  for (int32_t tokens : kernels_test::kManyTokens) {
    CheckMatmul(kernels(), type(), 40, HasWholeBlocks(type(), 64) ? 64 : 256, tokens, &random);
    ASSERT_FALSE(HasFailure());
  }
}

// A kernel may keep what it computes of a token beside the stack's end, for so many columns as
// there are in models; wider ones take another way.
TEST_P(MatmulTest, OneTokenOfMoreColumnsThanModelsHave) {
  Random random(5);
  for (int32_t cols : {32768, 32768 + 256}) {
    CheckMatmul(kernels(), type(), 17, cols, 1, &random);
    ASSERT_FALSE(HasFailure());
  }
}

// Threads share a matmul by groups, batches by tokens: no way of cutting it changes a bit.
TEST_P(MatmulTest, AnyPartitionGivesTheSameBits) {
  constexpr int32_t kRows = 71, kTokens = 9;
  constexpr int64_t kStride = 80;
  const int32_t kCols = HasWholeBlocks(type(), 544) ? 544 : 512;
  Random random(2);
  const auto bytes = RandomWeights(type(), int64_t{kRows} * kCols, &random);
  const PackedMatrix w(type(), kRows, kCols, bytes);
  const auto x = MakeActivations(kernels(), kTokens, kCols,
                                 RandomValues(static_cast<size_t>(kTokens * kCols), &random));
  std::vector<float> whole(size_t{kTokens} * kStride, kCanary);
  Multiply(kernels(), w, x.Get(), 0, w.groups(), whole.data(), kStride);

  std::vector<float> by_group(whole.size(), kCanary);
  for (int32_t g = w.groups() - 1; g >= 0; --g) {
    Multiply(kernels(), w, x.Get(), g, g, by_group.data(), kStride);  // an empty range: nothing
    EXPECT_EQ(by_group[static_cast<size_t>(g * 16)], kCanary);
    Multiply(kernels(), w, x.Get(), g, g + 1, by_group.data(), kStride);
    EXPECT_EQ(by_group[static_cast<size_t>(std::max(g * 16 - 1, kRows))], kCanary);
  }
  EXPECT_EQ(DigestOfFloats(whole), DigestOfFloats(by_group));

  std::vector<float> by_token(whole.size(), kCanary);
  for (int32_t t = 0; t < kTokens; ++t) {
    const auto row = x.values.begin() + t * kCols;
    const auto one = MakeActivations(kernels(), 1, kCols, std::vector<float>(row, row + kCols));
    Multiply(kernels(), w, one.Get(), 0, w.groups(), by_token.data() + t * kStride, kStride);
  }
  EXPECT_EQ(DigestOfFloats(whole), DigestOfFloats(by_token));
}

// The largest integer sums: every product at its extreme, of both signs.
TEST_P(QuantizedMatmulTest, ExtremeQuantsAreSummedExactly) {
  const GgmlTypeTraits traits = *TraitsOf(type());
  const auto cols = static_cast<int32_t>(traits.block_elements);
  const internal::QuantHalves halves = internal::HalvesOf(type());
  for (const int fill : {0x00, 0xff, 0x0f, 0x7f, 0x80, 0x81}) {
    std::vector<std::byte> row(static_cast<size_t>(traits.block_bytes),
                               static_cast<std::byte>(fill));
    kernels_test::StoreHalf(0x3c00, row.data() + halves.scale);  // 1
    if (halves.low >= 0) kernels_test::StoreHalf(0x3c00, row.data() + halves.low);
    std::vector<std::byte> bytes;
    for (int r = 0; r < 16; ++r) bytes.insert(bytes.end(), row.begin(), row.end());
    const PackedMatrix w(type(), 16, cols, bytes);
    const PlainRow plain = ReadRow(type(), row.data(), cols);
    double weights = 0;  // exact: small integers
    for (int32_t k = 0; k < cols; ++k) {
      const auto s = static_cast<size_t>(k / plain.sub_block);
      weights += plain.integers[static_cast<size_t>(k)] * double{plain.scales[s]};
      if (!plain.lows.empty()) weights += plain.lows[s];
    }
    for (int tokens : {1, 4}) {
      for (const float sign : {1.0f, -1.0f}) {
        const auto count = static_cast<size_t>(tokens) * static_cast<size_t>(cols);
        const auto x =
            MakeActivations(kernels(), tokens, cols, std::vector<float>(count, 127 * sign));
        std::vector<float> y(static_cast<size_t>(tokens) * 16);
        Multiply(kernels(), w, x.Get(), 0, 1, y.data(), 16);
        for (size_t i = 0; i < y.size(); ++i) {
          // A super-block of such numbers may need a bit more than there are.
          const double exact = weights * 127 * sign;
          EXPECT_NEAR(y[i], exact, std::fabs(exact) * 0x1p-22) << fill;
          ExpectSameBits(ReferenceDot(type(), row.data(), x, static_cast<int32_t>(i / 16)), y[i],
                         fmt::format("fill {}", fill));
        }
      }
    }
  }
}

TEST_P(MatmulTest, NonFiniteInputsReachTheirOutputsAndNoOthers) {
  constexpr int32_t kRows = 17;
  const int32_t kCols = HasWholeBlocks(type(), 288) ? 288 : 512;
  Random random(8);
  auto bytes = RandomWeights(type(), int64_t{kRows} * kCols, &random);
  // Row 3 gets an infinite element or scale in its last block.
  const int64_t row_bytes = RowBytes(type(), kCols);
  std::byte* end = bytes.data() + 4 * row_bytes;
  switch (type()) {
    case GgmlType::kF32:
    case GgmlType::kBF16:
      kernels_test::StoreHalf(0x7f80, end - 2);
      break;
    case GgmlType::kF16:
      kernels_test::StoreHalf(0x7c00, end - 2);
      break;
    default:
      kernels_test::StoreHalf(
          0x7c00, end - TraitsOf(type())->block_bytes + internal::HalvesOf(type()).scale);
  }
  const PackedMatrix w(type(), kRows, kCols, bytes);
  auto values = RandomValues(static_cast<size_t>(3 * kCols), &random);
  values[static_cast<size_t>(kCols) + 5] = std::numeric_limits<float>::quiet_NaN();
  const auto x = MakeActivations(kernels(), 3, kCols, values);
  std::vector<float> y(size_t{3} * kRows);
  Multiply(kernels(), w, x.Get(), 0, w.groups(), y.data(), kRows);
  for (int32_t t = 0; t < 3; ++t) {
    for (int32_t r = 0; r < kRows; ++r) {
      const float actual = y[static_cast<size_t>(t * kRows + r)];
      EXPECT_EQ(std::isfinite(actual), t != 1 && r != 3) << t << ", " << r;
      ExpectSameBits(ReferenceDot(type(), bytes.data() + r * row_bytes, x, t), actual,
                     fmt::format("token {}, row {}", t, r));
    }
  }
}

// A lone partial sum is the result itself: adding it to +0 would lose the sign of -0.
TEST(MatmulZeroTest, ANegativeUnderflowStaysNegative) {
  for (const KernelTable* kernels : AvailableKernels()) {
    for (int32_t cols : {1, 256, 257}) {
      std::vector<float> weights(static_cast<size_t>(cols), 0.0f);
      std::vector<float> values(static_cast<size_t>(cols), 1.0f);
      weights[static_cast<size_t>(std::min(cols, 256)) - 1] = -0x1p-100f;
      values[static_cast<size_t>(std::min(cols, 256)) - 1] = 0x1p-100f;
      const PackedMatrix w(GgmlType::kF32, 1, cols, std::as_bytes(std::span(weights)));
      const Activations x = {.tokens = 1, .cols = cols, .values = values.data()};
      float y = kCanary;
      Multiply(*kernels, w, x, 0, 1, &y, 1);
      EXPECT_EQ(std::signbit(y), cols <= 256) << kernels->name << ", " << cols;
      EXPECT_EQ(y, 0.0f);
    }
  }
}

TEST(MatmulDeathTest, WrongUse) {
  const std::vector<float> weights(32);
  const PackedMatrix w(GgmlType::kF32, 1, 32, std::as_bytes(std::span(weights)));
  const KernelTable& kernels = SelectKernels();
  float y = 0;
  Activations x = {.tokens = 1, .cols = 31, .values = weights.data()};
  EXPECT_DEATH(Multiply(kernels, w, x, 0, 1, &y, 1), "31 columns, the matrix 32");
  x.cols = 32;
  EXPECT_DEATH(Multiply(kernels, w, x, 0, 2, &y, 1), "groups \\[0, 2\\) of 1");
  EXPECT_DEATH(Multiply(kernels, w, x, -1, 1, &y, 1), "groups \\[-1, 1\\) of 1");
  x.values = nullptr;
  EXPECT_DEATH(Multiply(kernels, w, x, 0, 1, &y, 1), "activations lack");
}

std::string ParamName(
    const testing::TestParamInfo<std::tuple<const KernelTable*, GgmlType>>& param) {
  return fmt::format("{}_{}", std::get<0>(param.param)->name,
                     TraitsOf(std::get<1>(param.param))->name);
}

auto Tables() { return testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()); }

INSTANTIATE_TEST_SUITE_P(AllTables, MatmulTest,
                         testing::Combine(Tables(), testing::ValuesIn(kTypes)), ParamName);
INSTANTIATE_TEST_SUITE_P(AllTables, QuantizedMatmulTest,
                         testing::Combine(Tables(), testing::ValuesIn(std::begin(kTypes) + 3,
                                                                      std::end(kTypes))),
                         ParamName);

}  // namespace
}  // namespace lockstep
