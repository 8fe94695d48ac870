// The reference's blocks: another project's decoder gives the same, and the engine's does.
#include "oracle/reference/blocks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "caches/random.h"
#include "engine/kernels.h"
#include "engine/quant_vectors.h"

namespace lockstep::oracle {
namespace {

struct Decoded {
  std::vector<double> values, constants;
};

Decoded DecodeAll(GgmlType type, const std::vector<std::byte>& bytes) {
  const auto blocks = static_cast<int64_t>(bytes.size()) / BlockBytes(type);
  Decoded out;
  out.values.resize(static_cast<size_t>(blocks * BlockElements(type)));
  out.constants.resize(out.values.size());
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t at = b * BlockElements(type);
    ValuesOfBlock(type, bytes.data() + b * BlockBytes(type), out.values.data() + at,
                  out.constants.data() + at);
  }
  return out;
}

TEST(ReferenceBlocksTest, DecodeWhatGgufPyDecodes) {
  for (const QuantVector& vector : kQuantVectors) {
    const Decoded decoded = DecodeAll(vector.type, QuantVectorBlocks(vector));
    EXPECT_EQ(ChecksumOfIntegers(decoded.values), vector.checksum) << TraitsOf(vector.type)->name;
  }
}

// Blocks of any bits, NaN and infinite scales included. The engine rounds a value once.
TEST(ReferenceBlocksTest, AgreeWithTheEnginesDecoder) {
  Random random(91);
  for (const QuantVector& vector : kQuantVectors) {
    std::vector<std::byte> bytes(static_cast<size_t>(200 * BlockBytes(vector.type)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
    const Decoded decoded = DecodeAll(vector.type, bytes);
    std::vector<float> engine(decoded.values.size());
    DecodeWeights(vector.type, bytes, engine);
    for (size_t i = 0; i < engine.size(); ++i) {
      const auto expected = static_cast<float>(decoded.values[i]);
      const bool same = std::isnan(expected) ? std::isnan(engine[i]) != 0 : engine[i] == expected;
      ASSERT_TRUE(same) << fmt::format("{} element {}: {} and {}", TraitsOf(vector.type)->name, i,
                                       engine[i], expected);
    }
  }
}

// The constant part is what an element of code 0 has, so it is the same all over a sub-block.
TEST(ReferenceBlocksTest, ConstantPartsAreThoseOfSubBlocks) {
  for (const QuantVector& vector : kQuantVectors) {
    const Decoded decoded = DecodeAll(vector.type, QuantVectorBlocks(vector));
    const auto run = static_cast<size_t>(ElementsOfAScale(vector.type));
    bool any = false;
    for (size_t i = 0; i < decoded.constants.size(); ++i) {
      ASSERT_EQ(decoded.constants[i], decoded.constants[i / run * run]);
      any = any || decoded.constants[i] != 0;
    }
    EXPECT_EQ(any, HasConstants(vector.type)) << TraitsOf(vector.type)->name;
  }
}

}  // namespace
}  // namespace lockstep::oracle
