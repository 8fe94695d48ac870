// matmul against a plain reference in the words of engine/ARITHMETIC.md, bit for bit.
#include <fmt/format.h>
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
             x.quants[static_cast<size_t>(token * x.cols + 32 * b + i)];
    }
    const float dw = HalfToFloat(LoadHalf(block));
    const float dx = x.scales[static_cast<size_t>(token * (x.cols / 32) + b)];
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

TEST_P(MatmulTest, EqualsThePlainReferenceAndWritesNothingElse) {
  Random random(1);
  for (int32_t cols : {1, 32, 64, 172, 255, 256, 257, 288, 544, 1056}) {
    if (IsQuantized(type()) && cols % 32 != 0) continue;
    for (int32_t rows : {1, 15, 16, 17, 172}) {
      const auto bytes = RandomWeights(type(), int64_t{rows} * cols, &random);
      const PackedMatrix w(type(), rows, cols, bytes);
      for (int32_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
        if (rows == 172 && tokens % 4 != 1) continue;
        const auto x = MakeActivations(kernels(), tokens, cols,
                                       RandomValues(static_cast<size_t>(tokens * cols), &random));
        const int64_t stride = rows + 5;
        std::vector<float> y(static_cast<size_t>(tokens * stride), kCanary);
        kernels().matmul(w, x.Get(), 0, w.groups(), y.data(), stride);
        for (int32_t t = 0; t < tokens; ++t) {
          for (int32_t r = 0; r < stride; ++r) {
            const float expected =
                r < rows ? ReferenceDot(type(), bytes.data() + r * RowBytes(type(), cols), x, t)
                         : kCanary;
            ExpectSameBits(
                expected, y[static_cast<size_t>(t * stride + r)],
                fmt::format("{} x {}, token {} of {}, row {}", rows, cols, t, tokens, r));
          }
        }
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

std::string ParamName(
    const testing::TestParamInfo<std::tuple<const KernelTable*, GgmlType>>& param) {
  constexpr const char* kNames[] = {"F32", "F16", "BF16", "Q8", "Q4"};
  const auto* at = std::find(std::begin(kTypes), std::end(kTypes), std::get<1>(param.param));
  return fmt::format("{}{}", std::get<0>(param.param)->name, kNames[at - std::begin(kTypes)]);
}

INSTANTIATE_TEST_SUITE_P(AllTables, MatmulTest,
                         testing::Combine(testing::ValuesIn(AvailableKernels().begin(),
                                                            AvailableKernels().end()),
                                          testing::ValuesIn(kTypes)),
                         ParamName);

}  // namespace
}  // namespace lockstep
