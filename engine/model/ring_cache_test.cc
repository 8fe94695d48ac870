// The engine over caches that forget rows (caches/CONTRACT.md, W1 to W5): the same bits as over a
// cache that keeps all, and a refusal where they could not be.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "caches/registry.h"
#include "engine/draft_source.h"
#include "engine/generate.h"
#include "engine/model/test_support.h"
#include "engine/transformer.h"

namespace lockstep {
namespace {

using testing::Bits;
using testing::CacheCall;
using testing::Iota;
using testing::PresetModel;
using testing::ProbeCache;
using testing::SomeTokens;

constexpr int32_t kLength = 60;

std::unique_ptr<KvCache> NewCache(const std::string& name, const Model& model) {
  return ParseCacheSpec(name).make({.geometry = model.config().geometry(kLength)});
}

// One of the same rows that keeps all.
std::unique_ptr<KvCache> FullOf(const std::string& ring, const Model& model) {
  const CacheSpec spec = ParseCacheSpec(ring);
  if (spec.grants_host_slots) return NewCache("simple", model);
  return NewCache(
      fmt::format("quantized/{}+{}/w0", RowTypeName(spec.key_type), RowTypeName(spec.value_type)),
      model);
}

struct RingCase {
  const char* preset;
  const char* cache;
};

class RingForwardTest : public ::testing::TestWithParam<RingCase> {};
INSTANTIATE_TEST_SUITE_P(
    Models, RingForwardTest,
    ::testing::Values(RingCase{"tiny-mistral-6x2-q8_0", "ring/model+3"},
                      RingCase{"tiny-mistral-6x2-q8_0", "ring/w9-5+1"},
                      RingCase{"tiny-gemma2-5x1-q8_0", "ring/model+4"},
                      RingCase{"tiny-gemma2-5x1-q8_0", "ring/w6-0+1"},
                      RingCase{"tiny-gemma3-3x1-f16", "ring/model+2"},
                      RingCase{"tiny-mistral-6x2-q8_0", "ring/f16+bf16/model+3"},
                      RingCase{"tiny-gemma2-5x1-q8_0", "ring/bf16+f32/w6-0+1"},
                      RingCase{"tiny-mha-4x4-f32", "ring/model+2"}),
    [](const auto& param_info) {
      return testing::TestName(std::string(param_info.param.preset) + param_info.param.cache);
    });

// Prefills cut anywhere, single tokens, drafts that are rejected, long enough to come round several
// times: logits of every step, and at the end every row that both still have.
TEST_P(RingForwardTest, W3_GivesTheBitsOfTheFullCache) {
  const auto model = PresetModel(GetParam().preset);
  const auto ring = NewCache(GetParam().cache, *model);
  const auto full = FullOf(GetParam().cache, *model);
  Transformer engine(model);
  const std::vector<int32_t> tokens = SomeTokens(model->config(), kLength);
  const int32_t undo = std::min(ring->max_step_rows(), 3);
  int32_t at = 0, rejected = 0;
  for (const int32_t count : {1, 2, 9, 1, 1, 4, 1, 17, 1, 1, 3, 1, 12, 1, 1}) {
    const auto step =
        std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    const std::vector<int32_t> positions = Iota(at, count);
    const auto expected = Bits(engine.Forward(step, positions, *full));
    EXPECT_EQ(Bits(engine.Forward(step, positions, *ring)), expected) << "at " << at;
    at += count;
    if (at + undo > kLength) break;
    const std::vector<int32_t> drafts = SomeTokens(model->config(), undo);
    const std::vector<int32_t> behind = Iota(at, undo);
    const auto drafted = Bits(engine.Forward(drafts, behind, *full));
    EXPECT_EQ(Bits(engine.Forward(drafts, behind, *ring)), drafted) << "drafts at " << at;
    full->Rollback(at);
    ring->Rollback(at);
    rejected += undo;
  }
  EXPECT_GT(at, 50);
  EXPECT_GT(rejected, 10);
  for (int32_t layer = 0; layer < model->config().num_layers; ++layer) {
    KvView view;
    ring->View(layer, &view);
    const KvRows got = DecodeRows(view, model->config().kv_dim());
    full->View(layer, &view);
    const KvRows want = DecodeRows(view, model->config().kv_dim());
    const auto skipped =
        static_cast<size_t>(got.first) * static_cast<size_t>(model->config().kv_dim());
    EXPECT_EQ(Bits(got.keys), Bits(std::span(want.keys).subspan(skipped))) << layer;
    EXPECT_EQ(Bits(got.values), Bits(std::span(want.values).subspan(skipped))) << layer;
    EXPECT_EQ(got.first > 0, ring->attention_window(layer) > 0) << layer;
  }
}

// Positions may leave out some: a step over a gap is cut where it could not be undone.
TEST_P(RingForwardTest, W3_GapsAreCutToo) {
  const auto model = PresetModel(GetParam().preset);
  const auto ring = NewCache(GetParam().cache, *model);
  const auto full = FullOf(GetParam().cache, *model);
  Transformer engine(model);
  const std::vector<int32_t> positions = {0, 1, 2, 9, 10, 30, 31, 33, 34, 50};
  const std::vector<int32_t> tokens = SomeTokens(model->config(), 10);
  const auto expected = Bits(engine.Forward(tokens, positions, *full));
  EXPECT_EQ(Bits(engine.Forward(tokens, positions, *ring)), expected);
}

std::string Refusal(const Model& model, Transformer* engine, const std::string& cache) {
  const auto ring = NewCache(cache, model);
  const std::vector<int32_t> tokens = {1, 2}, positions = {0, 1};
  try {
    engine->Forward(tokens, positions, *ring);
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(ring->current_length(), 0);
    return error.what();
  }
  return "";
}

TEST(RingStepTest, F2_ALayerThatSeesFurtherThanTheRingIsRefused) {
  const auto mistral = PresetModel("tiny-mistral-6x2-q8_0");
  Transformer engine(mistral);
  EXPECT_EQ(Refusal(*mistral, &engine, "ring/w5+3"), "");
  EXPECT_THAT(Refusal(*mistral, &engine, "ring/w0-4+3"),
              ::testing::HasSubstr("keeps 4 rows for a query of layer 1, the model sees 5 there"));
  const auto gemma = PresetModel("tiny-gemma2-5x1-q8_0");
  Transformer other(gemma);
  EXPECT_THAT(
      Refusal(*gemma, &other, "ring/w6+3"),
      ::testing::HasSubstr("keeps 6 rows for a query of layer 1, the model sees all there"));
}

// Also for a step from a position that was allowed once.
TEST(RingStepTest, F2_AStepThatCouldNotBeUndoneIsRefused) {
  const auto model = PresetModel("tiny-mistral-6x2-q8_0");
  const auto ring = NewCache("ring/model+3", *model);
  Transformer engine(model);
  const std::vector<int32_t> tokens = SomeTokens(model->config(), 30);
  engine.Forward(tokens, Iota(0, 30), *ring);
  const Digest before = DigestOfCache(*ring);
  const std::vector<int32_t> one = {7};
  EXPECT_THROW(engine.Forward(one, Iota(26, 1), *ring), std::invalid_argument);
  EXPECT_EQ(DigestOfCache(*ring), before);
  EXPECT_NO_THROW(engine.Forward(one, Iota(27, 1), *ring));
}

// At every call of the step: what fails within R rows is undone, what fails after more of them
// leaves nothing.
TEST(RingStepTest, F1_AStepThatCannotBeUndoneLeavesNothing) {
  const auto model = PresetModel("tiny-mistral-6x2-q8_0");
  Transformer engine(model);
  const std::vector<int32_t> tokens = SomeTokens(model->config(), 60);
  int32_t undone = 0, cleared = 0;
  for (const int32_t rows : {3, 11}) {
    for (int32_t fail_at = 0;; ++fail_at) {
      ProbeCache cache(NewCache("ring/model+3", *model));
      engine.Forward(std::span(tokens).first(20), Iota(0, 20), cache);
      int32_t calls = 0;
      cache.on_call = [&](CacheCall, int32_t, bool) {
        if (calls++ == fail_at) throw std::runtime_error("planted");
      };
      try {
        engine.Forward(std::span(tokens).subspan(20, static_cast<size_t>(rows)), Iota(20, rows),
                       cache);
        break;
      } catch (const std::runtime_error&) {
      }
      cache.on_call = nullptr;
      const int32_t length = cache.current_length();
      for (int32_t layer = 0; layer < model->config().num_layers; ++layer) {
        EXPECT_EQ(cache.length(layer), length) << "call " << fail_at;
      }
      EXPECT_TRUE(length == 20 || (length == 0 && rows > 3)) << length << ", call " << fail_at;
      (length == 0 ? cleared : undone) += 1;
      const auto fresh = NewCache("simple", *model);
      const std::vector<int32_t> again = SomeTokens(model->config(), 20 + 2);
      engine.Forward(std::span(again).first(static_cast<size_t>(length) + 1), Iota(0, length + 1),
                     *fresh);
      const auto expected = Bits(engine.Forward(
          std::span(again).subspan(static_cast<size_t>(length), 1), Iota(length, 1), *fresh));
      EXPECT_EQ(Bits(engine.Forward(std::span(again).subspan(static_cast<size_t>(length), 1),
                                    Iota(length, 1), cache)),
                expected);
    }
  }
  EXPECT_GT(undone, 10);
  EXPECT_GT(cleared, 10);
}

// Drafts are no more than can be taken back, and what they left does not show.
TEST(RingStepTest, W2_SpeculationDraftsNoMoreThanCanBeUndone) {
  const auto model = PresetModel("tiny-mistral-6x2-q8_0");
  Transformer engine(model);
  const std::vector<int32_t> prompt = SomeTokens(model->config(), 9);
  LookupDraftSource lookup(1);
  GenerateOptions options;
  options.max_new_tokens = 40;
  const auto full = NewCache("simple", *model);
  const GenerateResult plain = Generate(engine, *full, prompt, options);
  options.drafts = &lookup;
  options.draft_tokens = 8;
  for (const char* name : {"ring/model+1", "ring/model+2", "ring/model+12"}) {
    const auto ring = NewCache(name, *model);
    const GenerateResult drafted = Generate(engine, *ring, prompt, options);
    EXPECT_EQ(drafted.tokens, plain.tokens) << name;
    EXPECT_GT(drafted.drafted, 0) << name;
  }
}

}  // namespace
}  // namespace lockstep
