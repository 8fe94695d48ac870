// Which experts a row picks and with which weights, and that rows of a step do not know each other.
#include "engine/model/expert_ffn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/math.h"
#include "engine/model/test_support.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> Chosen(std::vector<float> logits, size_t count) {
  std::vector<int32_t> chosen(count);
  ChooseExperts(logits, chosen);
  return chosen;
}

TEST(ChooseExpertsTest, TakesTheLargestInIncreasingOrder) {
  EXPECT_THAT(Chosen({1, 5, 2, 4, 3}, 1), ElementsAre(1));
  EXPECT_THAT(Chosen({1, 5, 2, 4, 3}, 3), ElementsAre(1, 3, 4));
  EXPECT_THAT(Chosen({5, 4, 3, 2, 1}, 2), ElementsAre(0, 1));
  EXPECT_THAT(Chosen({1, 2, 3, 4, 5}, 2), ElementsAre(3, 4));
  EXPECT_THAT(Chosen({1, 2, 3}, 3), ElementsAre(0, 1, 2));
}

TEST(ChooseExpertsTest, OfEqualOnesTheFirst) {
  EXPECT_THAT(Chosen({1, 1, 1, 1}, 2), ElementsAre(0, 1));
  EXPECT_THAT(Chosen({0, 2, 1, 2, 2}, 2), ElementsAre(1, 3));
  EXPECT_THAT(Chosen({1, 0, 1, 2}, 2), ElementsAre(0, 3));
  EXPECT_THAT(Chosen({-0.0f, 0.0f}, 1), ElementsAre(0));
  EXPECT_THAT(Chosen({0.0f, -0.0f}, 1), ElementsAre(0));
}

TEST(ChooseExpertsTest, NanComesAfterEveryNumber) {
  EXPECT_THAT(Chosen({kNan, -kInf, kNan, 1}, 2), ElementsAre(1, 3));
  EXPECT_THAT(Chosen({kNan, -kInf, kNan, 1}, 3), ElementsAre(0, 1, 3));
  EXPECT_THAT(Chosen({kNan, kNan, kNan}, 2), ElementsAre(0, 1));
}

// Equal logits have equal weights: 1 / n of all, or 1 / k of the chosen.
TEST(ExpertWeightsTest, AreTheSoftmaxOfAllLogits) {
  const std::vector<float> logits = {2, 2, 2, 2};
  const std::vector<int32_t> chosen = {1, 3};
  std::vector<float> weights(2), scratch(4);
  ExpertWeightsOf(logits, chosen, false, weights, scratch);
  EXPECT_THAT(weights, ElementsAre(0.25f, 0.25f));
  ExpertWeightsOf(logits, chosen, true, weights, scratch);
  EXPECT_THAT(weights, ElementsAre(0.5f, 0.5f));
}

// In the words of engine/ARITHMETIC.md, with more experts than lanes.
TEST(ExpertWeightsTest, RoundAsWritten) {
  std::vector<float> logits;
  for (int i = 0; i < 37; ++i) logits.push_back(std::fmod(0.37f * static_cast<float>(i * i), 3.1f));
  const std::vector<int32_t> chosen = Chosen(logits, 4);
  std::vector<float> e, lanes(16);
  float top = logits[0];
  for (const float logit : logits) top = std::max(top, logit);
  for (size_t i = 0; i < logits.size(); ++i) {
    e.push_back(CanonicalExp(logits[i] - top));
    lanes[i % 16] = lanes[i % 16] + e[i];
  }
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) lanes[j] = lanes[j] + lanes[j + width];
  }
  std::vector<float> expected;
  for (const int32_t j : chosen) expected.push_back(e[static_cast<size_t>(j)] / lanes[0]);
  std::vector<float> weights(4), scratch(37);
  ExpertWeightsOf(logits, chosen, false, weights, scratch);
  EXPECT_EQ(Bits(weights), Bits(expected));
  const float sum = ((expected[0] + expected[1]) + expected[2]) + expected[3];
  for (float& weight : expected) weight = weight / sum;
  ExpertWeightsOf(logits, chosen, true, weights, scratch);
  EXPECT_EQ(Bits(weights), Bits(expected));
}

// Experts gather rows by who picked them: what a row gets must not depend on who else did.
TEST(ExpertFfnTest, ARowsResultIsItsOwn) {
  for (const char* preset :
       {"tiny-mixtral-4x2-q8_0", "tiny-qwen2moe-3x1-f16", "tiny-qwen3moe-4x1-q4_0"}) {
    const auto model = PresetModel(preset);
    const std::vector<int32_t> tokens = SomeTokens(model->config(), 23);
    Transformer whole(model, {.threads = 3});
    const std::span<const float> logits = whole.ForwardUncached(tokens);
    const std::vector<uint32_t> expected = Bits(logits);
    const auto cache = NewProbe(*model, 32);
    Transformer single(model, {.kernels = &SelectKernels("scalar"), .max_step_tokens = 1});
    EXPECT_EQ(Bits(single.Forward(tokens, Iota(0, 23), *cache)), expected) << preset;
  }
}

// Otherwise nothing of this is exercised.
TEST(ExpertFfnTest, RowsOfTheModelsPickDifferentExperts) {
  for (const char* preset :
       {"tiny-mixtral-4x2-q8_0", "tiny-qwen2moe-3x1-f16", "tiny-qwen3moe-4x1-q4_0"}) {
    const auto model = PresetModel(preset);
    const ModelConfig& config = model->config();
    RecordingTrace trace;
    Transformer engine(model);
    engine.ForwardUncached(SomeTokens(config, 23), &trace);
    std::vector<int32_t> rows_of(static_cast<size_t>(config.num_experts));
    for (const RecordingTrace::Entry& entry : trace.entries()) {
      if (entry.stage != Stage::kFfnRouter || entry.layer != 1) continue;
      for (size_t row = 0; row < 23; ++row) {
        const std::span logits = std::span(entry.rows)
                                     .subspan(row * static_cast<size_t>(entry.width),
                                              static_cast<size_t>(config.num_experts));
        std::vector<int32_t> chosen(static_cast<size_t>(config.experts_used));
        ChooseExperts(logits, chosen);
        for (const int32_t expert : chosen) ++rows_of[static_cast<size_t>(expert)];
      }
    }
    for (const int32_t rows : rows_of) {
      EXPECT_GT(rows, 0) << preset;
      EXPECT_LT(rows, 23) << preset;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
