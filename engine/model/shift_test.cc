// Generation past the end of the context. What a shift computes is tested in oracle/shift_test.cc.
#include "engine/shift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "caches/error.h"
#include "caches/paged_kv_cache.h"
#include "caches/registry.h"
#include "engine/generate.h"
#include "engine/model/test_support.h"
#include "engine/prefix_cache.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kLimit = 16;
constexpr int32_t kKeep = 3;

class ShiftGenerateTest : public ::testing::Test {
 protected:
  std::unique_ptr<KvCache> NewCache(const std::string& name) {
    return ParseCacheSpec(name).make({.geometry = model_->config().geometry(kLimit)});
  }

  // The same by hand: a step a token, and half of what is not kept goes when nothing is left.
  std::vector<int32_t> ByHand(int32_t count) {
    const auto cache = NewCache("simple");
    std::vector<int32_t> tokens = {ArgMax(transformer_.Forward(prompt_, Iota(0, 5), *cache))};
    while (std::ssize(tokens) < count) {
      if (cache->current_length() == kLimit) {
        ShiftContext(model_->config(), transformer_.kernels(), {kKeep, kKeep + 6}, cache.get());
      }
      const int32_t position = cache->current_length();
      tokens.push_back(ArgMax(transformer_.Forward({{tokens.back()}}, {{position}}, *cache)));
    }
    return tokens;
  }

  std::shared_ptr<const Model> model_ = PresetModel("tiny-untied-4x2-q8_0");
  Transformer transformer_{model_};
  std::vector<int32_t> prompt_ = SomeTokens(model_->config(), 5);
  GenerateOptions options_ = {.max_new_tokens = 60, .shift_keep = kKeep};
};

TEST_F(ShiftGenerateTest, GoesOnWhenTheContextIsFull) {
  const std::vector<int32_t> expected = ByHand(60);
  for (const char* name : {"simple", "paged/4", "paged/1"}) {
    const auto cache = NewCache(name);
    const GenerateResult result = Generate(transformer_, *cache, prompt_, options_);
    EXPECT_EQ(result.tokens, expected) << name;
    // 64 rows were written: 16, and then 6 after each shift.
    EXPECT_EQ(result.shifts, 8);
    EXPECT_EQ(result.deleted, 48);
    EXPECT_EQ(cache->current_length(), 64 - 48);
  }
  const auto window = NewCache("quantized/q8_0+q8_0/w4");
  EXPECT_EQ(Generate(transformer_, *window, prompt_, options_).tokens.size(), 60u);
}

TEST_F(ShiftGenerateTest, DraftsChangeNoToken) {
  const std::vector<int32_t> expected = ByHand(60);
  LookupDraftSource drafts(1);
  options_.drafts = &drafts;
  for (const int32_t count : {1, 4, 30}) {
    options_.draft_tokens = count;
    const auto cache = NewCache("paged/4");
    const GenerateResult result = Generate(transformer_, *cache, prompt_, options_);
    EXPECT_EQ(result.tokens, expected) << count;
    EXPECT_GT(result.drafted, 0);
  }
}

TEST_F(ShiftGenerateTest, WhatDoesNotFitIsRefused) {
  const auto refusal = [&](int32_t prompt, int32_t keep,
                           const std::string& name = "simple") -> std::string {
    const auto cache = NewCache(name);
    options_.shift_keep = keep;
    try {
      Generate(transformer_, *cache, SomeTokens(model_->config(), prompt), options_);
    } catch (const Error& error) {
      EXPECT_EQ(cache->current_length(), 0);
      return error.what();
    }
    return "generated";
  };
  EXPECT_EQ(refusal(kLimit, kLimit - 2), "generated");
  EXPECT_THAT(refusal(kLimit + 1, 0), HasSubstr("the cache has 16"));
  EXPECT_THAT(refusal(5, kLimit - 1), HasSubstr("leaves none to delete"));
  EXPECT_THAT(refusal(5, INT32_MAX), HasSubstr("leaves none to delete"));
  EXPECT_THAT(refusal(5, -1), HasSubstr("the cache has 16"));
  EXPECT_THAT(refusal(5, 2, "ring/w3+4"), HasSubstr("forgets rows"));
}

// Rows that moved are not those of their tokens.
TEST_F(ShiftGenerateTest, P7_ShiftedRowsAreNotRegistered) {
  const auto pool = std::make_shared<BlockPool>(BlockPoolOptions{
      .geometry = model_->config().geometry(kLimit), .block_size = 4, .num_blocks = 20});
  PagedKvCache cache(
      {.geometry = model_->config().geometry(kLimit), .block_size = 4, .pool = pool});
  PrefixIndex index(cache);
  PrefixCache prefixes(transformer_, index);
  options_.prefixes = &prefixes;
  const std::vector<int32_t> expected = ByHand(60);
  EXPECT_EQ(Generate(transformer_, cache, prompt_, options_).tokens, expected);
  EXPECT_EQ(index.blocks().size(), 1u);  // of the prompt, before the first shift
  cache.Clear();
  const GenerateResult again = Generate(transformer_, cache, prompt_, options_);
  EXPECT_EQ(again.tokens, expected);
  EXPECT_EQ(again.attached, 4);
}

}  // namespace
}  // namespace lockstep::testing
