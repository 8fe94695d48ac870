#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "caches/error.h"
#include "engine/model/test_support.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class GenerateTest : public ::testing::Test {
 protected:
  GenerateResult Generate(KvCache& cache, const GenerateOptions& options) {
    return lockstep::Generate(transformer_, cache, prompt_, options);
  }

  std::string RefusalOf(KvCache& cache, int32_t max_new_tokens) {
    try {
      Generate(cache, {.max_new_tokens = max_new_tokens});
    } catch (const Error& error) {
      return error.what();
    }
    return "generated";
  }

  std::shared_ptr<const Model> model_ = PresetModel("tiny-mha-4x4-f32");
  Transformer transformer_{model_};
  std::vector<int32_t> prompt_ = SomeTokens(model_->config(), 5);
};

TEST_F(GenerateTest, EqualsAStepByStepArgmax) {
  const auto cache = NewProbe(*model_, 32);
  std::vector<int32_t> streamed;
  GenerateOptions options = {.max_new_tokens = 6};
  options.on_token = [&](int32_t t) { streamed.push_back(t); };
  const GenerateResult result = Generate(*cache, options);
  ASSERT_EQ(result.tokens.size(), 6u);
  EXPECT_EQ(streamed, result.tokens);
  EXPECT_EQ(cache->current_length(), 5 + 6 - 1);  // the last token is not fed back

  std::vector<int32_t> text = prompt_;
  DigestBuilder digest;
  for (int32_t token : result.tokens) {
    const auto logits = transformer_.ForwardUncached(text);
    digest.AddFloats(logits);
    EXPECT_EQ(token, ArgMax(logits));
    text.push_back(token);
  }
  EXPECT_EQ(result.logits_digest, digest.Finish());
}

TEST_F(GenerateTest, AppendsToWhatTheCacheHolds) {
  const auto whole = NewProbe(*model_, 32);
  const auto parts = NewProbe(*model_, 32);
  const auto expected = Generate(*whole, {.max_new_tokens = 4}).tokens;
  transformer_.Forward(std::span(prompt_).first(3), Iota(0, 3), *parts);
  const auto rest = std::span<const int32_t>(prompt_).subspan(3);
  EXPECT_EQ(lockstep::Generate(transformer_, *parts, rest, {.max_new_tokens = 4}).tokens, expected);
  EXPECT_EQ(DigestOfCache(parts->inner()), DigestOfCache(whole->inner()));
}

// Penalties look at the whole text, whichever part of it the cache held before.
TEST_F(GenerateTest, WhatTheCacheHoldsCountsForPenalties) {
  GenerateOptions options = {.max_new_tokens = 12};
  options.sampler.presence_penalty = 100;
  options.sampler.penalty_tokens = -1;
  const auto whole = NewProbe(*model_, 32), parts = NewProbe(*model_, 32);
  const GenerateResult expected = Generate(*whole, options);
  std::vector<int32_t> text = prompt_;
  text.insert(text.end(), expected.tokens.begin(), expected.tokens.end());
  std::ranges::sort(text);
  EXPECT_EQ(std::ranges::adjacent_find(text), text.end()) << "no token twice";
  const auto held = std::span<const int32_t>(prompt_).first(3);
  transformer_.Forward(held, Iota(0, 3), *parts);
  options.before = held;
  const auto rest = std::span<const int32_t>(prompt_).subspan(3);
  EXPECT_EQ(lockstep::Generate(transformer_, *parts, rest, options).tokens, expected.tokens);
}

TEST_F(GenerateTest, StopsAfterProducingAStopToken) {
  const auto free_run = NewProbe(*model_, 32);
  const auto tokens = Generate(*free_run, {.max_new_tokens = 8}).tokens;
  const int32_t stop = tokens[3];
  const auto first =
      static_cast<size_t>(std::find(tokens.begin(), tokens.end(), stop) - tokens.begin());
  const auto cache = NewProbe(*model_, 32);
  GenerateOptions options = {.max_new_tokens = 8};
  options.stop_tokens = {-1, stop};
  const auto stopped = Generate(*cache, options).tokens;
  EXPECT_THAT(stopped, ::testing::ElementsAreArray(tokens.begin(),
                                                   tokens.begin() + static_cast<long>(first) + 1));
  EXPECT_EQ(cache->current_length(), 5 + static_cast<int32_t>(first));
}

TEST_F(GenerateTest, NoNewTokensIsAPrefill) {
  const auto cache = NewProbe(*model_, 5);
  EXPECT_TRUE(Generate(*cache, {.max_new_tokens = 0}).tokens.empty());
  EXPECT_EQ(cache->current_length(), 5);
}

TEST_F(GenerateTest, FillsTheCacheExactly) {
  for (int32_t held : {0, 2}) {
    for (int32_t spare : {-1, 0, 1}) {
      const auto cache = NewProbe(*model_, held + 5 + 4 - 1 + spare);
      if (held > 0) transformer_.Forward(SomeTokens(model_->config(), held), Iota(0, held), *cache);
      const Digest before = DigestOfCache(cache->inner());
      const std::string outcome = RefusalOf(*cache, 4);
      if (spare < 0) {
        EXPECT_THAT(outcome, HasSubstr("the cache has"));
        EXPECT_EQ(DigestOfCache(cache->inner()), before);
      } else {
        EXPECT_EQ(outcome, "generated");
      }
    }
  }
}

TEST_F(GenerateTest, FillsTheContextExactly) {
  const int32_t context = model_->config().context_length;
  const auto cache = NewProbe(*model_, context + 10);
  transformer_.Forward(SomeTokens(model_->config(), context - 8), Iota(0, context - 8), *cache);
  EXPECT_THAT(RefusalOf(*cache, 5), HasSubstr("the model's context has"));
  EXPECT_EQ(RefusalOf(*cache, 4), "generated");
  EXPECT_EQ(cache->current_length(), context);
}

TEST_F(GenerateTest, RefusesWhatMakesNoSense) {
  const auto cache = NewProbe(*model_, 32);
  EXPECT_THAT(RefusalOf(*cache, -1), HasSubstr("max_new_tokens"));
  EXPECT_THAT(RefusalOf(*cache, std::numeric_limits<int32_t>::max()), HasSubstr("the cache has"));
  prompt_.clear();
  EXPECT_THAT(RefusalOf(*cache, 3), HasSubstr("prompt"));
  EXPECT_EQ(cache->writes(), 0);
}

}  // namespace
}  // namespace lockstep::testing
