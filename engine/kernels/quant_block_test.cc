// Blocks of model files taken apart: checksums by another project's decoder, the way back, and the
// values by their definition.
#include "engine/kernels/quant_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/kernels.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/test_inputs.h"
#include "engine/quant_vectors.h"

namespace lockstep::internal {
namespace {

const uint8_t* BytesAt(const std::vector<std::byte>& bytes, int64_t at) {
  return reinterpret_cast<const uint8_t*>(bytes.data() + at);
}

TEST(QuantBlockTest, DecodesWhatGgufPyDecodes) {
  for (const QuantVector& vector : kQuantVectors) {
    const std::vector<std::byte> bytes = QuantVectorBlocks(vector);
    const GgmlTypeTraits traits = *TraitsOf(vector.type);
    std::vector<float> values(bytes.size() / static_cast<size_t>(traits.block_bytes) *
                              static_cast<size_t>(traits.block_elements));
    DecodeWeights(vector.type, bytes, values);
    EXPECT_EQ(ChecksumOfIntegers({values.begin(), values.end()}), vector.checksum) << traits.name;
  }
}

TEST(QuantBlockTest, WhatIsReadIsWrittenBackByteForByte) {
  Random random(71);
  for (const QuantVector& vector : kQuantVectors) {
    const GgmlTypeTraits traits = *TraitsOf(vector.type);
    const auto bytes = kernels_test::RandomBlocks(vector.type, 50 * traits.block_elements, &random);
    for (int64_t b = 0; b < 50; ++b) {
      QuantBlock block;
      ReadQuantBlock(vector.type, BytesAt(bytes, b * traits.block_bytes), &block);
      std::vector<uint8_t> written(static_cast<size_t>(traits.block_bytes), 0xaa);
      WriteQuantBlock(vector.type, block, written.data());
      const uint8_t* from = BytesAt(bytes, b * traits.block_bytes);
      EXPECT_EQ(written, std::vector<uint8_t>(from, from + traits.block_bytes)) << traits.name;
    }
  }
}

// integer * scale, and fma(integer, scale, low) with lows, each rounded once.
TEST(QuantBlockTest, ValuesAreRoundedOnce) {
  Random random(72);
  for (const QuantVector& vector : kQuantVectors) {
    const QuantFormat f = FormatOf(vector.type);
    const int64_t elements = TraitsOf(vector.type)->block_elements;
    const auto bytes = kernels_test::RandomBlocks(vector.type, elements, &random);
    QuantBlock block;
    ReadQuantBlock(vector.type, BytesAt(bytes, 0), &block);
    std::vector<float> values(static_cast<size_t>(elements));
    DecodeQuantBlock(vector.type, block, values.data());
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t s = i / f.sub_block;
      const int code = f.table ? kIq4Table[block.codes[i]] : block.codes[i];
      const double d = kernels_test::HalfToFloat(block.scale);
      const double scale = f.super ? d * block.scales[s] : d;
      double value = (code - f.bias) * scale;
      if (f.lows) {
        const double low = kernels_test::HalfToFloat(block.low);
        value += f.super ? -(low * block.lows[s]) : low;
      }
      EXPECT_EQ(static_cast<float>(value), values[static_cast<size_t>(i)])
          << TraitsOf(vector.type)->name << " " << i;
    }
  }
}

}  // namespace
}  // namespace lockstep::internal
