// What a user of the forward pass relies on, in nine statements, each on a synthetic model and on
// the real one (F32 and Q8_0). The cases follow dotLLM's forward-pass tests by behaviour.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "caches/simple_kv_cache.h"
#include "engine/generate.h"
#include "engine/model/test_support.h"
#include "engine/test_models.h"
#include "engine/tokenizer.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr std::string_view kPrompt = "Once upon a time";

struct Subject {
  std::string model;  // a preset, or a file below the models' directory
  bool is_file = false;
  std::vector<int32_t> expected;  // greedy continuation of kPrompt with BOS
};

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model; }

// The real model's words are another engine's (", there was a little girl named Lily."); the
// synthetic ones are recorded from this engine, whose bits are specified.
const std::vector<int32_t> kStory = {432, 383, 286, 261, 376, 298, 315, 421,
                                     395, 317, 426, 338, 401, 396, 267, 337};

class ForwardPassTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (GetParam().is_file) {
      LOCKSTEP_TEST_MODEL_OR_SKIP(path, GetParam().model);
      model_ = Model::Load(GgufFile::Open(path));
    } else {
      model_ = PresetModel(GetParam().model);
    }
    transformer_ = std::make_unique<Transformer>(model_);
    tokenizer_ = Tokenizer::Load(model_->file());
    prompt_ = tokenizer_->EncodePrompt(kPrompt);
  }

  SimpleKvCache NewCache() const { return SimpleKvCache(model_->config().geometry(64)); }

  std::vector<float> Cached(std::span<const int32_t> tokens) {
    SimpleKvCache cache = NewCache();
    const auto logits =
        transformer_->Forward(tokens, Iota(0, static_cast<int32_t>(tokens.size())), cache);
    return {logits.begin(), logits.end()};
  }

  std::vector<float> Uncached(std::span<const int32_t> tokens) {
    const auto logits = transformer_->ForwardUncached(tokens);
    return {logits.begin(), logits.end()};
  }

  // Computes everything anew for each token.
  std::vector<int32_t> GreedyUncached(int32_t count) {
    std::vector<int32_t> text = prompt_;
    for (int32_t i = 0; i < count; ++i) text.push_back(ArgMax(transformer_->ForwardUncached(text)));
    return {text.end() - count, text.end()};
  }

  std::vector<int32_t> GreedyCached(int32_t count) {
    SimpleKvCache cache = NewCache();
    return Generate(*transformer_, cache, prompt_, {.max_new_tokens = count}).tokens;
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> prompt_;
};

TEST_P(ForwardPassTest, OneTokenGivesALogitForEachToken) {
  EXPECT_EQ(Cached({{1}}).size(), static_cast<size_t>(model_->config().vocab_size));
}

TEST_P(ForwardPassTest, OneTokensLogitsAreFinite) {
  const std::vector<float> logits = Cached({{1}});
  EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
  EXPECT_GT(*std::max_element(logits.begin(), logits.end()),
            *std::min_element(logits.begin(), logits.end()));
}

TEST_P(ForwardPassTest, TheSameInputGivesTheSameBits) {
  const std::vector<float> first = Cached(prompt_);
  Cached({{3, 2, 1}});  // whatever the workspace held before must not matter
  EXPECT_EQ(Bits(Cached(prompt_)), Bits(first));
  Transformer other(model_);
  EXPECT_EQ(Bits(other.ForwardUncached(prompt_)), Bits(first));
}

TEST_P(ForwardPassTest, ManyTokensGiveTheLogitsOfTheLastAlone) {
  const std::vector<float> together = Cached(prompt_);
  ASSERT_EQ(together.size(), static_cast<size_t>(model_->config().vocab_size));
  SimpleKvCache cache = NewCache();
  std::vector<uint32_t> last;
  for (size_t i = 0; i < prompt_.size(); ++i) {
    const auto position = static_cast<int32_t>(i);
    const auto bits = Bits(transformer_->Forward({&prompt_[i], 1}, {&position, 1}, cache));
    EXPECT_NE(bits, last) << "position " << i;
    last = bits;
  }
  EXPECT_EQ(Bits(together), last);
}

TEST_P(ForwardPassTest, GreedyTextIsCoherent) {
  const std::vector<int32_t> tokens = GreedyUncached(5);
  for (int32_t token : tokens) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, model_->config().vocab_size);
  }
  EXPECT_FALSE(tokenizer_->Decode(tokens).empty());
  EXPECT_GT(std::set<int32_t>(tokens.begin(), tokens.end()).size(), 1u);
}

TEST_P(ForwardPassTest, TheNextTokenIsTheExpectedOne) {
  EXPECT_EQ(ArgMax(Uncached(prompt_)), GetParam().expected.front());
}

TEST_P(ForwardPassTest, PrefillWithACacheEqualsPrefillWithout) {
  for (size_t n = 1; n <= prompt_.size(); ++n) {
    const auto tokens = std::span<const int32_t>(prompt_).first(n);
    EXPECT_EQ(Bits(Cached(tokens)), Bits(Uncached(tokens))) << n << " tokens";
  }
}

TEST_P(ForwardPassTest, GreedyWithACacheEqualsGreedyWithout) {
  EXPECT_EQ(GreedyCached(16), GreedyUncached(16));
}

TEST_P(ForwardPassTest, GreedyWithACacheGivesTheExpectedTokens) {
  const auto count = static_cast<int32_t>(GetParam().expected.size());
  EXPECT_EQ(GreedyCached(count), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ForwardPassTest,
    ::testing::Values(
        Subject{"stories260K-f32.gguf", true, kStory},
        Subject{"stories260K-q8_0.gguf", true, kStory},
        Subject{"tiny-mha-4x4-f32", false, {174, 104, 78, 202, 122, 245, 78, 128}},
        Subject{"tiny-gqa-9x3-q8_0", false, {268, 87, 285, 254, 295, 83, 65, 150}},
        Subject{"tiny-bias-qknorm-6x2-q8_0", false, {181, 82, 94, 291, 272, 92, 185, 134}}),
    [](const auto& param) { return TestName(param.param.model); });

}  // namespace
}  // namespace lockstep::testing
