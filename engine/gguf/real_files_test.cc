// Files that other programs wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "caches/error.h"
#include "engine/gguf.h"
#include "engine/test_models.h"

namespace lockstep {
namespace {

// Counts as the header of each file states them.
struct RealFile {
  const char* path;
  const char* architecture;
  uint32_t version;
  size_t tensors;
  size_t metadata;
};

void PrintTo(const RealFile& file, std::ostream* out) { *out << file.path; }

class RealFileTest : public testing::TestWithParam<RealFile> {};

TEST_P(RealFileTest, OpensWithAllItsEntries) {
  const RealFile& expected = GetParam();
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, expected.path);
  const auto file = GgufFile::Open(path);
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->version(), expected.version);
  EXPECT_EQ(file->tensors().size(), expected.tensors);
  EXPECT_EQ(file->metadata().size(), expected.metadata);
  EXPECT_EQ(file->RequireString("general.architecture"), expected.architecture);
}

constexpr RealFile kRealFiles[] = {
    {"stories260K-f32.gguf", "llama", 3, 47, 27},
    {"stories260K-f16.gguf", "llama", 3, 47, 27},
    {"stories260K-q8_0.gguf", "llama", 3, 47, 27},
    {"stories260K-f32-untied.gguf", "llama", 3, 48, 27},
    {"stories260K-q8_0-ffn192.gguf", "llama", 3, 47, 27},
    {"stories260K-q4_0-ffn192.gguf", "llama", 3, 47, 27},
    {"quant/stories260K-pad256-f32.gguf", "llama", 3, 47, 27},
    {"quant/stories260K-pad256-f16.gguf", "llama", 3, 47, 27},
    {"quant/stories260K-pad256-bf16.gguf", "llama", 3, 47, 27},
    {"quant/stories260K-pad256-q8_0.gguf", "llama", 3, 47, 27},
    {"quant/stories260K-pad256-q4_0.gguf", "llama", 3, 47, 27},
    {"quant/stories260K-pad256-q5_0.gguf", "llama", 3, 47, 27},
    {"quant/stories260K-pad256-q4_k_m.gguf", "llama", 3, 47, 27},
    {"quant/stories260K-pad256-q6_k.gguf", "llama", 3, 47, 27},
    {"ollama_llama-2-tiny-random.gguf", "llama", 3, 12, 18},
    {"weightless_tiny.gguf", "llama", 3, 4, 7},
    {"weight-inspect_empty.gguf", "llama", 3, 0, 1},
    {"vocab/ggml-vocab-aquila.gguf", "llama", 2, 0, 18},
    {"vocab/ggml-vocab-gpt-2.gguf", "gpt2", 3, 0, 16},
    {"vocab/ggml-vocab-llama-bpe.gguf", "llama", 3, 0, 20},
    {"vocab/ggml-vocab-llama-spm.gguf", "llama", 3, 0, 22},
    {"vocab/ggml-vocab-phi-3.gguf", "phi3", 3, 0, 26},
    {"vocab/ggml-vocab-qwen2.gguf", "qwen2", 3, 0, 20},
};

INSTANTIATE_TEST_SUITE_P(Files, RealFileTest, testing::ValuesIn(kRealFiles));

TEST(RealFileErrorTest, ATensorWithoutDataIsRefused) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "weight-inspect_tiny.gguf");
  try {
    GgufFile::Open(path);
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("tensor 'test.weight.0': offset: needs 32768 bytes"));
  }
}

TEST(RealFileErrorTest, TensorsOfSuperBlocksHaveTheirBytes) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "quant/stories260K-pad256-q6_k.gguf");
  const auto file = GgufFile::Open(path);
  const GgufTensor* tensor = file->FindTensor("blk.0.attn_q.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->type, GgmlType::kQ6_K);
  EXPECT_EQ(tensor->data.size(), 256u * 210u);  // [256, 256] in blocks of 256 elements, 210 bytes
  EXPECT_EQ(&file->RequireTensor("blk.0.attn_q.weight", tensor->shape), tensor);
}

}  // namespace
}  // namespace lockstep
