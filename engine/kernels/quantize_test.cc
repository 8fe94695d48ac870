// QuantizeWeights: as near as the format allows, and the same bytes everywhere.
#include "engine/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "engine/kernels.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/test_inputs.h"
#include "engine/quant_vectors.h"

namespace lockstep {
namespace {

constexpr size_t kElements = 4096;

std::vector<std::byte> Quantized(GgmlType type, std::span<const float> row) {
  const GgmlTypeTraits traits = *TraitsOf(type);
  std::vector<std::byte> bytes(row.size() / static_cast<size_t>(traits.block_elements) *
                               static_cast<size_t>(traits.block_bytes));
  QuantizeWeights(type, row, bytes);
  return bytes;
}

std::vector<float> Decoded(GgmlType type, std::span<const std::byte> bytes, size_t count) {
  std::vector<float> values(count);
  DecodeWeights(type, bytes, values);
  return values;
}

// Uniform in [-1, 1): with so many bits the steps are about 2 / 2^bits of the largest.
std::vector<float> UniformRow() {
  Random random(81);
  std::vector<float> row(kElements);
  for (float& value : row)
    value = static_cast<float>(random.Between(-(1 << 20), 1 << 20)) * 0x1p-20f;
  return row;
}

TEST(QuantizeTest, ErrorsAreThoseOfTheBits) {
  const std::vector<float> row = UniformRow();
  for (const QuantVector& vector : kQuantVectors) {
    const std::string name(TraitsOf(vector.type)->name);
    const auto values = Decoded(vector.type, Quantized(vector.type, row), row.size());
    double squares = 0;
    for (size_t i = 0; i < row.size(); ++i) squares += std::pow(values[i] - row[i], 2);
    const double rms = std::sqrt(squares / static_cast<double>(row.size()));
    const internal::QuantFormat f = internal::FormatOf(vector.type);
    // A step of 2 / (2^bits - 1), uniform error; half as much again for scales that are rounded,
    // elements that are cut off, and steps of a table that differ.
    const double step = 2.0 / ((1 << f.lines()) - 1);
    EXPECT_LT(rms, 1.5 * step / std::sqrt(12.0)) << name;
    EXPECT_GT(rms, 0.5 * step / std::sqrt(12.0)) << name;
  }
}

TEST(QuantizeTest, ZerosStayZeroAndWhatABlockHoldsIsKept) {
  const std::vector<float> zeros(256, 0.0f);
  for (const QuantVector& vector : kQuantVectors) {
    const auto values = Decoded(vector.type, Quantized(vector.type, zeros), zeros.size());
    EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == 0; }))
        << TraitsOf(vector.type)->name;
  }
}

// What was decoded is what is encoded again, for types whose scales are no bytes.
TEST(QuantizeTest, RoundsOnce) {
  const std::vector<float> row = UniformRow();
  for (const GgmlType type : {GgmlType::kQ5_0, GgmlType::kIQ4_NL}) {
    const auto once = Decoded(type, Quantized(type, row), row.size());
    const auto twice = Decoded(type, Quantized(type, once), row.size());
    EXPECT_EQ(DigestOfFloats(once), DigestOfFloats(twice)) << TraitsOf(type)->name;
  }
}

}  // namespace
}  // namespace lockstep
