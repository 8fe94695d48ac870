#include "engine/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "caches/simple_kv_cache.h"
#include "engine/math.h"
#include "engine/model/test_support.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr int32_t kStages = static_cast<int32_t>(Stage::kLogits) + 1;

// (layer, stage) in order of computation for one internal step.
std::vector<std::pair<int32_t, Stage>> ExpectedStages(const ModelConfig& config, bool with_logits) {
  const int32_t layers = config.num_layers;
  std::vector<std::pair<int32_t, Stage>> stages = {{-1, Stage::kEmbedding}};
  for (int32_t layer = 0; layer < layers; ++layer) {
    for (int32_t s = static_cast<int32_t>(Stage::kAttnNorm);
         s <= static_cast<int32_t>(Stage::kFfnOut); ++s) {
      const auto stage = static_cast<Stage>(s);
      if (stage != Stage::kFfnRouter || config.num_experts > 0) stages.emplace_back(layer, stage);
    }
  }
  if (with_logits) {
    stages.emplace_back(layers, Stage::kFinalNorm);
    stages.emplace_back(layers, Stage::kLogits);
  }
  return stages;
}

int64_t ExpectedWidth(const ModelConfig& config, Stage stage) {
  switch (stage) {
    case Stage::kEmbedding:
    case Stage::kAttnNorm:
    case Stage::kAttnOut:
    case Stage::kFfnNorm:
    case Stage::kFfnOut:
    case Stage::kFinalNorm:
      return config.dim;
    case Stage::kQuery:
    case Stage::kQueryRope:
    case Stage::kAttention:
      return config.q_dim();
    case Stage::kKey:
    case Stage::kValue:
    case Stage::kKeyRope:
    case Stage::kCacheKey:
    case Stage::kCacheValue:
      return config.kv_dim();
    case Stage::kFfnHidden:
      return config.hidden_dim();
    case Stage::kFfnRouter:
      return config.num_experts + (config.shared_dim > 0 ? 1 : 0);
    case Stage::kLogits:
      return config.vocab_size;
  }
  return 0;
}

TEST(TraceTest, StagesHaveDistinctNames) {
  std::set<std::string_view> names;
  for (int32_t s = 0; s < kStages; ++s) names.insert(StageName(static_cast<Stage>(s)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kStages));
  EXPECT_EQ(StageName(Stage::kAttnNorm), "attn_norm");
  EXPECT_EQ(StageName(Stage::kCacheKey), "cache_key");
}

class TraceOfTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const Model> model_ = PresetModel(GetParam());
  const ModelConfig& config_ = model_->config();
};

INSTANTIATE_TEST_SUITE_P(Presets, TraceOfTest,
                         ::testing::Values("tiny-gqa-9x3-q8_0", "tiny-bias-qknorm-6x2-q8_0",
                                           "tiny-ragged-3x1-f32"),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(TraceOfTest, EachStageComesOnceALayerAndStepWithItsShape) {
  Transformer transformer(model_, {.max_step_tokens = 4});
  const auto cache = NewProbe(*model_, 32);
  RecordingTrace trace;
  const auto logits = transformer.Forward(SomeTokens(config_, 7), Iota(0, 7), *cache, &trace);
  // Two internal steps, 4 and 3 tokens; logits belong to the last.
  std::vector<std::pair<int32_t, Stage>> expected = ExpectedStages(config_, false);
  const size_t first_step = expected.size();
  for (const auto& stage : ExpectedStages(config_, true)) expected.push_back(stage);
  ASSERT_EQ(trace.entries().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const RecordingTrace::Entry& entry = trace.entries()[i];
    EXPECT_EQ(entry.layer, expected[i].first) << i;
    EXPECT_EQ(entry.stage, expected[i].second) << i;
    EXPECT_EQ(entry.width, ExpectedWidth(config_, entry.stage)) << StageName(entry.stage);
    std::vector<int32_t> positions = i < first_step ? Iota(0, 4) : Iota(4, 3);
    if (entry.stage == Stage::kFinalNorm || entry.stage == Stage::kLogits) positions = {6};
    EXPECT_EQ(entry.positions, positions) << StageName(entry.stage);
    EXPECT_EQ(static_cast<int64_t>(entry.rows.size()),
              entry.width * static_cast<int64_t>(positions.size()));
  }
  EXPECT_EQ(Bits(trace.entries().back().rows), Bits(logits));
}

const RecordingTrace::Entry& Find(const RecordingTrace& trace, int32_t layer, Stage stage) {
  for (const auto& entry : trace.entries()) {
    if (entry.layer == layer && entry.stage == stage) return entry;
  }
  ADD_FAILURE() << "no " << StageName(stage) << " at layer " << layer;
  return trace.entries().front();
}

TEST_P(TraceOfTest, CacheRowsAreTheRowsJustWritten) {
  Transformer transformer(model_);
  const auto cache = NewProbe(*model_, 32);
  for (bool legacy : {false, true}) {
    for (const auto& positions : std::vector<std::vector<int32_t>>{Iota(0, 5), {5, 6, 9}, {3}}) {
      cache->refuse_slots = legacy;
      RecordingTrace trace;
      transformer.Forward(SomeTokens(config_, static_cast<int32_t>(positions.size())), positions,
                          *cache, &trace);
      for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
        EXPECT_EQ(Bits(Find(trace, layer, Stage::kCacheKey).rows),
                  Bits(Find(trace, layer, Stage::kKeyRope).rows));
        EXPECT_EQ(Bits(Find(trace, layer, Stage::kCacheValue).rows),
                  Bits(Find(trace, layer, Stage::kValue).rows));
      }
    }
    cache->Clear();
  }
}

TEST_P(TraceOfTest, ListeningChangesNoBit) {
  Transformer transformer(model_);
  const auto quiet = NewProbe(*model_, 32);
  const auto heard = NewProbe(*model_, 32);
  DigestTrace trace;
  const auto tokens = SomeTokens(config_, 9);
  const auto expected = Bits(transformer.Forward(tokens, Iota(0, 9), *quiet));
  EXPECT_EQ(Bits(transformer.Forward(tokens, Iota(0, 9), *heard, &trace)), expected);
  EXPECT_EQ(DigestOfCache(heard->inner()), DigestOfCache(quiet->inner()));
}

TEST_P(TraceOfTest, WithAndWithoutACacheTheStagesAreEqual) {
  Transformer transformer(model_);
  const auto cache = NewProbe(*model_, 32);
  DigestTrace cached, uncached;
  transformer.Forward(SomeTokens(config_, 9), Iota(0, 9), *cache, &cached);
  transformer.ForwardUncached(SomeTokens(config_, 9), &uncached);
  EXPECT_EQ(cached.entries(), uncached.entries());
}

TEST_P(TraceOfTest, DigestsAreThoseOfTheRecordedRows) {
  Transformer transformer(model_);
  RecordingTrace rows;
  DigestTrace digests;
  transformer.ForwardUncached(SomeTokens(config_, 6), &rows);
  transformer.ForwardUncached(SomeTokens(config_, 6), &digests);
  ASSERT_EQ(rows.entries().size(), digests.entries().size());
  for (size_t i = 0; i < rows.entries().size(); ++i) {
    EXPECT_EQ(digests.entries()[i].layer, rows.entries()[i].layer);
    EXPECT_EQ(digests.entries()[i].stage, rows.entries()[i].stage);
    EXPECT_EQ(digests.entries()[i].digest, DigestOfFloats(rows.entries()[i].rows));
  }
  rows.Reset();
  digests.Reset();
  EXPECT_TRUE(rows.entries().empty());
  EXPECT_TRUE(digests.entries().empty());
}

TEST_P(TraceOfTest, AReusedTraceHoldsNothingOfBefore) {
  Transformer transformer(model_);
  RecordingTrace reused, fresh;
  transformer.ForwardUncached(SomeTokens(config_, 6), &reused);
  reused.Reset();
  transformer.ForwardUncached(SomeTokens(config_, 3), &reused);
  transformer.ForwardUncached(SomeTokens(config_, 3), &fresh);
  ASSERT_EQ(reused.entries().size(), fresh.entries().size());
  for (size_t i = 0; i < fresh.entries().size(); ++i) {
    EXPECT_EQ(reused.entries()[i].positions, fresh.entries()[i].positions);
    EXPECT_EQ(Bits(reused.entries()[i].rows), Bits(fresh.entries()[i].rows));
  }
}

TEST_P(TraceOfTest, EmbeddingRowsAreTheTokens) {
  Transformer transformer(model_);
  RecordingTrace trace;
  const std::vector<int32_t> tokens = {0, config_.vocab_size - 1, 3};
  transformer.ForwardUncached(tokens, &trace);
  std::vector<float> expected(static_cast<size_t>(config_.dim) * 3);
  for (size_t t = 0; t < 3; ++t) {
    model_->Embed(tokens[t], std::span(expected).subspan(t * static_cast<size_t>(config_.dim),
                                                         static_cast<size_t>(config_.dim)));
  }
  for (float& value : expected) value *= config_.embedding_scale;
  EXPECT_EQ(Bits(Find(trace, -1, Stage::kEmbedding).rows), Bits(expected));
}

// QK-norm of each head first, then RoPE, then nothing.
TEST_P(TraceOfTest, RopeFollowsTheHeadNorms) {
  Transformer transformer(model_);
  const KernelTable& kernels = transformer.kernels();
  const RopeTable rope(config_.rope, 4);
  RecordingTrace trace;
  transformer.ForwardUncached(SomeTokens(config_, 4), &trace);
  const auto expect = [&](Stage before, Stage after, int32_t heads, auto weight_of) {
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
      std::vector<float> rows = Find(trace, layer, before).rows;
      const std::vector<float>& weight = weight_of(model_->layers()[static_cast<size_t>(layer)]);
      for (int32_t i = 0; i < 4 * heads; ++i) {
        float* head = rows.data() + i * config_.head_dim;
        if (!weight.empty()) {
          kernels.rms_norm(head, weight.data(), config_.head_dim, config_.rms_eps, head);
        }
        if (!config_.rotates(layer)) continue;
        const bool halves = config_.rope_pairing == RopePairing::kHalves;
        (halves ? kernels.rope_halves : kernels.rope_interleaved)(
            head, 1, config_.head_dim, config_.rope.dim, rope.cos(i / heads).data(),
            rope.sin(i / heads).data());
      }
      EXPECT_EQ(Bits(rows), Bits(Find(trace, layer, after).rows)) << StageName(after);
    }
  };
  expect(
      Stage::kQuery, Stage::kQueryRope, config_.num_heads,
      [](const LayerWeights& w) -> const auto& { return w.q_norm; });
  expect(
      Stage::kKey, Stage::kKeyRope, config_.num_kv_heads,
      [](const LayerWeights& w) -> const auto& { return w.k_norm; });
}

// The first rope.dimension_count elements of each head turn with the position, by the angles of a
// rotation of so many, the others never.
TEST(TraceRopeTest, OnlyTheRotaryPartTurns) {
  EditableImage image(PresetModel("tiny-untied-4x2-q8_0")->file());
  image.metadata["llama.rope.dimension_count"] = uint64_t{12};
  const auto model = Model::Load(image.Build());
  Transformer transformer(model);
  RecordingTrace trace;
  transformer.ForwardUncached(SomeTokens(model->config(), 3), &trace);
  for (auto [before, after] :
       {std::pair{Stage::kQuery, Stage::kQueryRope}, std::pair{Stage::kKey, Stage::kKeyRope}}) {
    const RecordingTrace::Entry& plain = Find(trace, 1, before);
    const RecordingTrace::Entry& turned = Find(trace, 1, after);
    for (size_t i = 0; i < plain.rows.size(); ++i) {
      const size_t position = i / static_cast<size_t>(plain.width);
      const bool rotary = i % 32 < 12;
      EXPECT_EQ(plain.rows[i] == turned.rows[i], !rotary || position == 0) << i;
    }
    const RopeTable rope({.dim = 12, .theta = model->config().rope.theta}, 3);
    std::vector<float> expected = plain.rows;
    for (int32_t p = 0; p < 3; ++p) {
      SelectKernels().rope_interleaved(expected.data() + p * plain.width,
                                       static_cast<int32_t>(plain.width / 32), 32, 12,
                                       rope.cos(p).data(), rope.sin(p).data());
    }
    EXPECT_EQ(Bits(turned.rows), Bits(expected));
  }
}

}  // namespace
}  // namespace lockstep::testing
