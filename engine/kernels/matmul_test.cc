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
#include "engine/kernels/test_inputs.h"

namespace lockstep {
namespace {

using kernels_test::BlockQuant;
using kernels_test::FloatElement;
using kernels_test::HalfToFloat;
using kernels_test::LoadHalf;
using kernels_test::MakeActivations;
using kernels_test::Multiply;
using kernels_test::OwnedActivations;
using kernels_test::RandomValues;
using kernels_test::RandomWeights;

constexpr GgmlType kTypes[] = {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0,
                               GgmlType::kQ4_0};
constexpr float kCanary = -0x1.abcdp+100f;

bool IsQuantized(GgmlType type) { return type == GgmlType::kQ8_0 || type == GgmlType::kQ4_0; }

// ((p0 + p1) + p2) + ...
float AddInOrder(const std::vector<float>& partials) {
  float sum = partials[0];
  for (size_t i = 1; i < partials.size(); ++i) sum = sum + partials[i];
  return sum;
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
  const bool q8 = type == GgmlType::kQ8_0;
  for (int32_t b = 0; b < x.cols / 32; ++b) {
    if (b % 8 == 0) partials.push_back(0.0f);
    const std::byte* block = row + b * (q8 ? 34 : 18);
    int64_t sum = 0;
    for (int i = 0; i < 32; ++i) {
      sum += int64_t{BlockQuant(q8, block, i)} *
             x.blocks[static_cast<size_t>(token * (x.cols / 32) + b)].quants[i];
    }
    const float dw = HalfToFloat(LoadHalf(block));
    const float dx = x.blocks[static_cast<size_t>(token * (x.cols / 32) + b)].scale;
    partials.back() = std::fma(static_cast<float>(sum), dw * dx, partials.back());
  }
  return AddInOrder(partials);
}

int64_t RowBytes(GgmlType type, int32_t cols) {
  switch (type) {
    case GgmlType::kF32:
      return int64_t{cols} * 4;
    case GgmlType::kQ8_0:
      return cols / 32 * 34;
    case GgmlType::kQ4_0:
      return cols / 32 * 18;
    default:
      return int64_t{cols} * 2;
  }
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
  for (int32_t cols : {1, 32, 64, 172, 255, 256, 257, 288, 544, 1056}) {
    if (IsQuantized(type()) && cols % 32 != 0) continue;
    for (int32_t rows : {1, 15, 16, 17, 172}) {
      for (int32_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
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
  for (int32_t tokens = 10; tokens <= 26; ++tokens) {
    CheckMatmul(kernels(), type(), tokens % 2 == 0 ? 33 : 64, 288, tokens, &random);
    ASSERT_FALSE(HasFailure());
  }
  for (int32_t tokens : {160, 161, 323}) {
    CheckMatmul(kernels(), type(), 40, 64, tokens, &random);
    ASSERT_FALSE(HasFailure());
  }
}

// Threads share a matmul by groups, batches by tokens: no way of cutting it changes a bit.
TEST_P(MatmulTest, AnyPartitionGivesTheSameBits) {
  constexpr int32_t kRows = 71, kCols = 544, kTokens = 9;
  constexpr int64_t kStride = 80;
  Random random(2);
  const auto bytes = RandomWeights(type(), int64_t{kRows} * kCols, &random);
  const PackedMatrix w(type(), kRows, kCols, bytes);
  const auto x =
      MakeActivations(kernels(), kTokens, kCols, RandomValues(size_t{kTokens} * kCols, &random));
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
  const bool q8 = type() == GgmlType::kQ8_0;
  for (const int fill : {q8 ? 0x80 : 0x00, q8 ? 0x7f : 0xff, q8 ? 0x81 : 0x0f}) {
    std::vector<std::byte> row;
    kernels_test::AppendU16(0x3c00, &row);  // scale 1
    row.resize(q8 ? 34 : 18, static_cast<std::byte>(fill));
    std::vector<std::byte> bytes;
    for (int r = 0; r < 16; ++r) bytes.insert(bytes.end(), row.begin(), row.end());
    const PackedMatrix w(type(), 16, 32, bytes);
    for (int tokens : {1, 4}) {
      for (const float sign : {1.0f, -1.0f}) {
        const auto x =
            MakeActivations(kernels(), tokens, 32,
                            std::vector<float>(static_cast<size_t>(tokens) * 32, 127 * sign));
        std::vector<float> y(static_cast<size_t>(tokens) * 16);
        Multiply(kernels(), w, x.Get(), 0, 1, y.data(), 16);
        int weights = 0;
        for (int i = 0; i < 32; ++i) weights += BlockQuant(q8, row.data(), i);
        for (float value : y) EXPECT_EQ(value, static_cast<float>(weights) * 127 * sign) << fill;
      }
    }
  }
}

TEST_P(MatmulTest, NonFiniteInputsReachTheirOutputsAndNoOthers) {
  constexpr int32_t kRows = 17, kCols = 288;
  Random random(8);
  auto bytes = RandomWeights(type(), int64_t{kRows} * kCols, &random);
  // Row 3 gets an infinite element or scale in its last block.
  const int64_t row_bytes = RowBytes(type(), kCols);
  std::byte* block = bytes.data() + 4 * row_bytes;
  switch (type()) {
    case GgmlType::kF32:
      block[-1] = std::byte{0x7f}, block[-2] = std::byte{0x80};
      break;
    case GgmlType::kF16:
      block[-1] = std::byte{0x7c}, block[-2] = std::byte{0x00};
      break;
    case GgmlType::kBF16:
      block[-1] = std::byte{0x7f}, block[-2] = std::byte{0x80};
      break;
    case GgmlType::kQ8_0:
      block[-33] = std::byte{0x7c}, block[-34] = std::byte{0x00};
      break;
    case GgmlType::kQ4_0:
      block[-17] = std::byte{0x7c}, block[-18] = std::byte{0x00};
      break;
  }
  const PackedMatrix w(type(), kRows, kCols, bytes);
  auto values = RandomValues(size_t{3} * kCols, &random);
  values[kCols + 5] = std::numeric_limits<float>::quiet_NaN();
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
  constexpr const char* kNames[] = {"F32", "F16", "BF16", "Q8", "Q4"};
  const auto* at = std::find(std::begin(kTypes), std::end(kTypes), std::get<1>(param.param));
  return fmt::format("{}{}", std::get<0>(param.param)->name, kNames[at - std::begin(kTypes)]);
}

auto Tables() { return testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()); }

INSTANTIATE_TEST_SUITE_P(AllTables, MatmulTest,
                         testing::Combine(Tables(), testing::ValuesIn(kTypes)), ParamName);
INSTANTIATE_TEST_SUITE_P(AllTables, QuantizedMatmulTest,
                         testing::Combine(Tables(),
                                          testing::Values(GgmlType::kQ8_0, GgmlType::kQ4_0)),
                         ParamName);

}  // namespace
}  // namespace lockstep
