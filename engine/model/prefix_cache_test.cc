#include "engine/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "caches/paged_kv_cache.h"
#include "engine/generate.h"
#include "engine/model/test_support.h"

namespace lockstep::testing {
namespace {

using ::testing::SizeIs;

constexpr std::string_view kPreset = "tiny-gqa-9x3-q8_0";

class PrefixCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<KvCache> NewCache() { return root_.Fork(); }

  AppliedAdapter Adapter(uint64_t seed, float scale) {
    return {MakeSyntheticAdapter(model_->config(), {}, seed), scale};
  }

  std::shared_ptr<const Model> model_ = PresetModel(kPreset);
  Transformer transformer_{model_};
  PagedKvCache root_{{.geometry = model_->config().geometry(40),
                      .block_size = 4,
                      .pool = std::make_shared<BlockPool>(
                          BlockPoolOptions{.geometry = model_->config().geometry(40),
                                           .block_size = 4,
                                           .num_blocks = 60,
                                           .shuffle_seed = 3})}};
  PrefixIndex index_{root_};
  PrefixCache prefixes_{transformer_, index_};
  std::vector<int32_t> prompt_ = SomeTokens(model_->config(), 14);
};

TEST_F(PrefixCacheTest, P8_TheKeyHasAllThatChangesABit) {
  const auto one = Adapter(1, 1), half = AppliedAdapter{one.adapter, 0.5f}, two = Adapter(2, 1);
  const auto off = AppliedAdapter{two.adapter, 0.0f};
  const PagedKvCache blocks_of_8({.geometry = model_->config().geometry(40), .block_size = 8});
  KvGeometry other = model_->config().geometry(40);
  other.num_kv_heads *= 2;
  other.head_dim /= 2;
  const PagedKvCache other_shape({.geometry = other, .block_size = 4});
  KvGeometry longer = model_->config().geometry(41);
  const PagedKvCache more_room({.geometry = longer, .block_size = 4});
  const Digest file = {1, 2};
  const auto key = [&](const Digest& model, std::vector<AppliedAdapter> adapters,
                       const KvCache& cache) { return PrefixKey(model, adapters, cache); };
  const Digest plain = key(file, {}, root_);
  const std::vector<Digest> different = {plain,
                                         key({2, 1}, {}, root_),
                                         key({1, 3}, {}, root_),
                                         key(file, {one}, root_),
                                         key(file, {half}, root_),
                                         key(file, {two}, root_),
                                         key(file, {one, one}, root_),
                                         key(file, {one, two}, root_),
                                         key(file, {two, one}, root_),
                                         key(file, {}, blocks_of_8),
                                         key(file, {}, other_shape)};
  for (size_t i = 0; i < different.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(different[i], different[j]) << i << ", " << j;
  }
  // What changes none: room, and an adapter that is not applied.
  EXPECT_EQ(key(file, {}, more_room), plain);
  EXPECT_EQ(key(file, {off}, root_), plain);
  EXPECT_EQ(key(file, {one, off}, root_), key(file, {one}, root_));
}

TEST_F(PrefixCacheTest, P8_OneWeightIsAnotherModel) {
  const auto same = Model::Load(MakeSyntheticModel(SyntheticPreset(kPreset), 1));
  const auto other = Model::Load(MakeSyntheticModel(SyntheticPreset(kPreset), 2));
  const auto cache = NewCache();
  transformer_.Forward(prompt_, Iota(0, 14), *cache);
  prefixes_.Register(prompt_, {}, *cache);
  Transformer same_engine(same), other_engine(other);
  EXPECT_EQ(PrefixCache(same_engine, index_).Attach(prompt_, {}, NewCache().get()), 12);
  EXPECT_EQ(PrefixCache(other_engine, index_).Attach(prompt_, {}, NewCache().get()), 0);
}

TEST_F(PrefixCacheTest, P8_HooksAreRefused) {
  class Hook final : public ProjectionHook {
    void Apply(int32_t, Projection, std::span<const float>, std::span<float>,
               int32_t) const override {}
  } hook;
  Transformer hooked(model_, {.hook = &hook});
  EXPECT_THROW(PrefixCache(hooked, index_), std::invalid_argument);
}

// By generation: tokens, digest and rows are those without an index, for prompts that are cut
// anywhere, under all adapters.
TEST_F(PrefixCacheTest, P2_AHitEqualsAColdRunBitForBit) {
  const std::vector<std::vector<AppliedAdapter>> sets = {
      {}, {Adapter(1, 1)}, {Adapter(1, 0.5f)}, {Adapter(1, 1), Adapter(2, -1)}};
  int64_t attached = 0;
  for (int32_t round = 0; round < 2; ++round) {
    for (const auto& set : sets) {
      transformer_.SetAdapters(set);
      for (const int32_t length : {14, 3, 9, 12, 13}) {
        const auto prompt = std::span(prompt_).first(static_cast<size_t>(length));
        const auto cold = NewCache(), warm = NewCache();
        GenerateOptions options = {.max_new_tokens = 6};
        const GenerateResult expected = Generate(transformer_, *cold, prompt, options);
        options.prefixes = &prefixes_;
        const GenerateResult result = Generate(transformer_, *warm, prompt, options);
        EXPECT_EQ(result.tokens, expected.tokens);
        EXPECT_EQ(result.logits_digest, expected.logits_digest) << length;
        EXPECT_EQ(DigestOfCache(*warm), DigestOfCache(*cold));
        EXPECT_EQ(expected.attached, 0);
        EXPECT_TRUE(round == 0 || result.attached == (length - 1) / 4 * 4) << length;
        attached += result.attached;
      }
    }
  }
  EXPECT_EQ(index_.counters().rows_attached, attached);
  EXPECT_GT(attached, 100);
}

TEST_F(PrefixCacheTest, GenerationRegistersWhatItFed) {
  const auto cache = NewCache();
  GenerateOptions options = {.max_new_tokens = 7};
  options.prefixes = &prefixes_;
  const GenerateResult result = Generate(transformer_, *cache, prompt_, options);
  EXPECT_THAT(index_.blocks(), SizeIs(20 / 4));
  std::vector<int32_t> text = prompt_;
  text.insert(text.end(), result.tokens.begin(), result.tokens.end());
  EXPECT_EQ(prefixes_.Attach(text, {}, NewCache().get()), 20);
  // Rows of which nobody said what they were computed from stay unknown.
  index_.Clear();
  const auto held = NewCache();
  transformer_.Forward(std::span(prompt_).first(8), Iota(0, 8), *held);
  Generate(transformer_, *held, std::span(prompt_).subspan(8), options);
  EXPECT_THAT(index_.blocks(), SizeIs(0));
}

TEST_F(PrefixCacheTest, P7_AFailedStepRegistersNothing) {
  const auto poor = std::make_shared<BlockPool>(BlockPoolOptions{
      .geometry = model_->config().geometry(40), .block_size = 4, .num_blocks = 3});
  PagedKvCache cache({.geometry = model_->config().geometry(40), .block_size = 4, .pool = poor});
  PrefixIndex index(cache);
  PrefixCache prefixes(transformer_, index);
  GenerateOptions options = {.max_new_tokens = 1};
  options.prefixes = &prefixes;
  EXPECT_THROW(Generate(transformer_, cache, prompt_, options), PoolExhausted);
  EXPECT_THAT(index.blocks(), SizeIs(0));
  EXPECT_THROW(prefixes.Register(prompt_, {}, cache), std::invalid_argument);
  // With some of it attached the same, and what was known stays known.
  Generate(transformer_, cache, std::span(prompt_).first(9), options);
  EXPECT_THAT(index.blocks(), SizeIs(2));
  cache.Clear();
  EXPECT_THROW(Generate(transformer_, cache, prompt_, options), PoolExhausted);
  EXPECT_EQ(cache.current_length(), 8);
  EXPECT_THAT(index.blocks(), SizeIs(2));
}

}  // namespace
}  // namespace lockstep::testing
