#include "reports/work.h"

#include <gtest/gtest.h>

#include "engine/synthetic.h"

namespace lockstep {
namespace {

std::shared_ptr<const Model> Load(std::string_view preset) {
  return Model::Load(MakeSyntheticModel(SyntheticPreset(preset), 1));
}

// dim 96, ffn 160, 3 layers, 9 heads of 32, 3 KV heads, vocabulary 320: Q8_0, tied head.
constexpr double kLayer = 96.0 * 288 + 2 * 96.0 * 96 + 288.0 * 96 + 3 * 96.0 * 160;
constexpr double kHead = 320.0 * 96;

TEST(WorkTest, DecodeReadsEveryWeightOnceAndTheVisibleRows) {
  const auto model = Load("tiny-gqa-9x3-q8_0");
  const Work f16 = DecodeWork(*model, {RowType::kF16, RowType::kF16}, 9);
  EXPECT_DOUBLE_EQ(f16.dot_multiply_adds, 3 * kLayer + kHead);
  EXPECT_DOUBLE_EQ(f16.bytes, (3 * kLayer + kHead) * 34 / 32 + 10 * 3 * 2 * 96 * 2);
  EXPECT_DOUBLE_EQ(f16.fma_multiply_adds, 3 * 10 * 2 * 288);
  const Work mixed = DecodeWork(*model, {RowType::kF32, RowType::kQ8_0}, 9);
  EXPECT_DOUBLE_EQ(mixed.bytes, (3 * kLayer + kHead) * 34 / 32 + 10 * 3 * (96 * 4 + 102));
}

TEST(WorkTest, PrefillUsesLayersForEveryTokenAndTheHeadForEveryStep) {
  const auto model = Load("tiny-gqa-9x3-q8_0");
  const Work one = PrefillWork(*model, 7, 512);
  EXPECT_DOUBLE_EQ(one.dot_multiply_adds, 7 * 3 * kLayer + kHead);
  EXPECT_DOUBLE_EQ(one.fma_multiply_adds, 3 * (7 * 8 / 2) * 2 * 288);
  EXPECT_DOUBLE_EQ(one.bytes, (3 * kLayer + kHead) * 34 / 32);
  const Work three = PrefillWork(*model, 7, 3);
  EXPECT_DOUBLE_EQ(three.dot_multiply_adds, 7 * 3 * kLayer + 3 * kHead);
  EXPECT_DOUBLE_EQ(three.bytes, 3 * one.bytes);
  EXPECT_DOUBLE_EQ(three.fma_multiply_adds, one.fma_multiply_adds);
}

TEST(WorkTest, WeightsThatAreNoBlocksAreF32Work) {
  const auto model = Load("tiny-mha-4x4-f32");
  const Work work = DecodeWork(*model, {}, 0);
  EXPECT_EQ(work.dot_multiply_adds, 0);
  const double weights = 3 * (4.0 * 32 * 32 + 3.0 * 32 * 48) + 288.0 * 32;
  EXPECT_DOUBLE_EQ(work.fma_multiply_adds, weights + 3 * 2 * 32);
  EXPECT_DOUBLE_EQ(work.bytes, 4 * weights + 3 * 2 * 32 * 4);
}

// dim 96, 3 layers, 6 heads of 32, 2 KV heads; a window of 5 rows.
TEST(WorkTest, AWindowBoundsTheVisibleRows) {
  const auto model = Load("tiny-mistral-6x2-q8_0");
  const Work decode = DecodeWork(*model, {}, 9);
  EXPECT_DOUBLE_EQ(decode.fma_multiply_adds, 3 * 5 * 2 * 192);
  EXPECT_DOUBLE_EQ(decode.bytes - DecodeWork(*model, {}, 0).bytes, 4 * 3 * 2 * 64 * 4);
  const Work prefill = PrefillWork(*model, 8, 512);
  EXPECT_DOUBLE_EQ(prefill.fma_multiply_adds, 3 * (1 + 2 + 3 + 4 + 4 * 5) * 2 * 192);
}

// dim 64, 3 layers, 4 heads of 16, 2 KV heads, 5 experts of 96, 2 for a row; routers are F32.
TEST(WorkTest, ExpertsAreUsedByTheirShareAndReadWhereAnyTokenUsesThem) {
  const auto model = Load("tiny-mixtral-4x2-q8_0");
  constexpr double kAttention = 2 * 64.0 * 64 + 2 * 32.0 * 64, kExpert = 3 * 64.0 * 96;
  constexpr double kRouter = 64 * 5, kOutput = 320 * 64;
  const Work decode = DecodeWork(*model, {}, 0);
  EXPECT_DOUBLE_EQ(decode.dot_multiply_adds, 3 * (kAttention + 2 * kExpert) + kOutput);
  EXPECT_DOUBLE_EQ(decode.bytes, (3 * (kAttention + 2 * kExpert) + kOutput) * 34 / 32 +
                                     3 * kRouter * 4 + 3 * 2 * 32 * 4);
  const Work prefill = PrefillWork(*model, 8, 512);
  EXPECT_DOUBLE_EQ(prefill.dot_multiply_adds, 3 * 8 * (kAttention + 2 * kExpert) + kOutput);
  EXPECT_DOUBLE_EQ(prefill.bytes,
                   (3 * (kAttention + 5 * kExpert) + kOutput) * 34 / 32 + 3 * kRouter * 4);
}

}  // namespace
}  // namespace lockstep
