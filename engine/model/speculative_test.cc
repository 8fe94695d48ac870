// Drafts change how many steps a text takes, and not the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "caches/registry.h"
#include "engine/generate.h"
#include "engine/model/test_support.h"

namespace lockstep::testing {
namespace {

constexpr int32_t kMaxLength = 64;

// Drafts as a test wants them.
class GivenDrafts final : public DraftSource {
 public:
  explicit GivenDrafts(std::function<std::vector<int32_t>(std::span<const int32_t>)> make)
      : make_(std::move(make)) {}
  Drafts Propose(std::span<const int32_t> text, int32_t count, Random* /*random*/) override {
    Drafts drafts{.tokens = make_(text), .proposal = {}};
    if (drafts.tokens.size() > static_cast<size_t>(count)) {
      drafts.tokens.resize(static_cast<size_t>(count));
    }
    for (const int32_t token : drafts.tokens) {
      drafts.proposal.push_back({{{token, kWeightOne}}, kWeightOne});
    }
    return drafts;
  }

 private:
  std::function<std::vector<int32_t>(std::span<const int32_t>)> make_;
};

class SpeculativeTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<KvCache> NewCache() const {
    return ParseCacheSpec(GetParam())
        .make({.geometry = model_->config().geometry(kMaxLength), .sequences = 1});
  }

  GenerateResult Run(KvCache& cache, const GenerateOptions& options) {
    return Generate(transformer_, cache, prompt_, options);
  }

  const std::shared_ptr<const Model> model_ = PresetModel("tiny-untied-4x2-q8_0");
  Transformer transformer_{model_};
  const std::vector<int32_t> prompt_ = SomeTokens(model_->config(), 5);
};

INSTANTIATE_TEST_SUITE_P(Caches, SpeculativeTest,
                         ::testing::Values("simple", "paged/1", "paged/4", "quantized/f16+f16/w0",
                                           "quantized/q8_0+q8_0/w0"),
                         [](const auto& param) { return TestName(param.param); });

// Right, wrong and half-right drafts, of every length: tokens, digest and rows are those of plain
// greedy generation.
TEST_P(SpeculativeTest, GreedyTextIsThatWithoutDraftsBitForBit) {
  const auto plain = NewCache();
  const GenerateResult expected = Run(*plain, {.max_new_tokens = 24});
  std::vector<int32_t> whole = prompt_;
  whole.insert(whole.end(), expected.tokens.begin(), expected.tokens.end());
  const int32_t vocab = model_->config().vocab_size;
  std::unique_ptr<KvCache> cache;
  for (const int32_t right : {0, 1, 2, 5, 30}) {
    GivenDrafts drafts([&](std::span<const int32_t> text) {
      // What was rejected is gone before anything else happens, not only once it is overwritten.
      EXPECT_EQ(cache->current_length(), std::ssize(text) - 1);
      std::vector<int32_t> next(whole.begin() + std::ssize(text), whole.end());
      for (size_t i = static_cast<size_t>(right); i < next.size(); i += 3) {
        next[i] = (next[i] + 1) % vocab;
      }
      return next;
    });
    for (const int32_t count : {1, 2, 4, 7}) {
      cache = NewCache();
      const GenerateResult result =
          Run(*cache, {.max_new_tokens = 24, .drafts = &drafts, .draft_tokens = count});
      EXPECT_EQ(result.tokens, expected.tokens) << right << " right of " << count;
      EXPECT_EQ(result.logits_digest, expected.logits_digest);
      EXPECT_EQ(DigestOfCache(*cache), DigestOfCache(*plain));
      EXPECT_EQ(cache->current_length(), plain->current_length());
      EXPECT_EQ(result.accepted > 0, right > 0);
      EXPECT_EQ(result.accepted == result.drafted, right >= 24 || right >= count) << right;
    }
  }
}

TEST_P(SpeculativeTest, LookupAndAModelGiveTheSameText) {
  const auto plain = NewCache();
  const GenerateResult expected = Run(*plain, {.max_new_tokens = 20});
  LookupDraftSource lookup(3);
  const auto one = NewCache();
  EXPECT_EQ(Run(*one, {.max_new_tokens = 20, .drafts = &lookup}).logits_digest,
            expected.logits_digest);
  // The model itself is its best draft: all of its drafts stand.
  Transformer drafter(model_);
  const auto own = NewCache(), two = NewCache();
  ModelDraftSource same(drafter, *own, {});
  const GenerateResult result = Run(*two, {.max_new_tokens = 20, .drafts = &same});
  EXPECT_EQ(result.logits_digest, expected.logits_digest);
  if (GetParam() == "simple") {
    EXPECT_EQ(result.accepted, result.drafted);
    EXPECT_GT(result.accepted, 10);
  }
}

// Wherever the text ends, the cache holds all of it but the last token.
TEST_P(SpeculativeTest, AStopInsideDraftsLeavesTheCacheAsWithout) {
  const auto plain = NewCache();
  const GenerateResult expected = Run(*plain, {.max_new_tokens = 20});
  for (size_t end = 0; end < 12; ++end) {
    const int32_t stop = expected.tokens[end];
    GenerateOptions options = {.max_new_tokens = 20};
    options.stop_tokens = {stop};
    const auto without = NewCache(), with = NewCache(), own = NewCache();
    const GenerateResult stopped = Run(*without, options);
    Transformer drafter(model_);
    ModelDraftSource same(drafter, *own, {});
    options.drafts = &same;
    const GenerateResult drafted = Run(*with, options);
    EXPECT_EQ(drafted.tokens, stopped.tokens);
    EXPECT_EQ(drafted.logits_digest, stopped.logits_digest);
    EXPECT_EQ(with->current_length(), without->current_length());
    EXPECT_EQ(DigestOfCache(*with), DigestOfCache(*without));
  }
}

// Drawn text differs from that without drafts, but not in how it is distributed: four tokens over
// many seeds, with bad drafts, two of them in a step.
TEST(SpeculativeSamplingTest, TokensAreDistributedAsWithout) {
  const auto model = PresetModel("tiny-mha-4x4-f32");
  Transformer transformer(model), drafter(model);
  const auto prompt = SomeTokens(model->config(), 3);
  const SamplerOptions target = {.temperature = 0.6f, .top_k = 3};
  std::map<std::vector<int32_t>, int> with, without;
  int64_t accepted = 0, drafted = 0;
  constexpr int kRuns = 4000;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const auto a = NewProbe(*model, 16), b = NewProbe(*model, 16), own = NewProbe(*model, 16);
    GenerateOptions options = {
        .max_new_tokens = 4, .sampler = target, .seed = seed, .logits_digest = false};
    ++without[Generate(transformer, *a, prompt, options).tokens];
    ModelDraftSource source(drafter, *own, {.temperature = 1.5f, .top_k = 5});
    options.drafts = &source;
    options.seed = seed + kRuns;
    const GenerateResult result = Generate(transformer, *b, prompt, options);
    ++with[result.tokens];
    accepted += result.accepted;
    drafted += result.drafted;
  }
  EXPECT_GT(accepted, kRuns / 10);
  EXPECT_LT(accepted, drafted * 9 / 10) << "some are rejected";
  int compared = 0;
  for (const auto& [tokens, count] : without) {
    if (count < 30) continue;
    ++compared;
    // Five standard deviations of the difference of two counts.
    EXPECT_NEAR(with[tokens], count, 5 * std::sqrt(2.0 * count)) << tokens[0] << " " << tokens[1];
  }
  EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace lockstep::testing
