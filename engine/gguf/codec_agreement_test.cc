// BF16 and the block formats of quantized caches are those of model files: encoding a float tensor
// of a real model gives the bytes that ggml's own quantizer wrote for it, block by block.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "caches/codec.h"
#include "engine/gguf.h"
#include "engine/test_models.h"

namespace lockstep {
namespace {

// Encodes the F32 tensors of one file and compares them with those of `type` in the other. Counts
// the blocks that are not all zero; of the others ggml may write the scale as -0.
void Compare(const GgufFile& floats, const GgufFile& quantized, GgmlType type, RowType row_type,
             int64_t* blocks) {
  const auto block_bytes = static_cast<size_t>(RowBytes(row_type, kBlockElements));
  for (const GgufTensor& tensor : quantized.tensors()) {
    if (tensor.type != type) continue;
    const GgufTensor& source = floats.RequireTensor(tensor.name, tensor.shape);
    ASSERT_EQ(source.type, GgmlType::kF32) << tensor.name;
    std::vector<float> block(kBlockElements);
    std::vector<std::byte> encoded(block_bytes);
    for (size_t b = 0; b < tensor.data.size() / block_bytes; ++b) {
      std::memcpy(block.data(), source.data.data() + b * sizeof(float) * block.size(),
                  sizeof(float) * block.size());
      EncodeRow(row_type, block, encoded);
      const auto expected = tensor.data.subspan(b * block_bytes, block_bytes);
      if (std::ranges::all_of(block, [](float x) { return x == 0.0f; })) {
        encoded[1] |= expected[1] & std::byte{0x80};
      } else {
        ++*blocks;
      }
      ASSERT_TRUE(std::ranges::equal(encoded, expected)) << tensor.name << " block " << b;
    }
  }
}

TEST(CodecAgreementTest, EncodedRowsEqualTheBlocksOfRealModels) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(floats, "quant/stories260K-pad256-f32.gguf");
  LOCKSTEP_TEST_MODEL_OR_SKIP(bf16, "quant/stories260K-pad256-bf16.gguf");
  LOCKSTEP_TEST_MODEL_OR_SKIP(q8_0, "quant/stories260K-pad256-q8_0.gguf");
  LOCKSTEP_TEST_MODEL_OR_SKIP(q4_0, "quant/stories260K-pad256-q4_0.gguf");
  const auto source = GgufFile::Open(floats);
  int64_t halves = 0, q8 = 0, q4 = 0;  // blocks
  Compare(*source, *GgufFile::Open(bf16), GgmlType::kBF16, RowType::kBf16, &halves);
  Compare(*source, *GgufFile::Open(q8_0), GgmlType::kQ8_0, RowType::kQ8_0, &q8);
  Compare(*source, *GgufFile::Open(q4_0), GgmlType::kQ4_0, RowType::kQ4_0, &q4);
  EXPECT_GT(halves, 7000);
  EXPECT_GT(q8, 7000);
  EXPECT_GT(q4, 7000);
}

}  // namespace
}  // namespace lockstep
