// The forward pass over a cache: both write paths, steps of any size, positions of any kind.
#include "engine/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "caches/simple_kv_cache.h"
#include "engine/model/test_support.h"

namespace lockstep::testing {
namespace {

class TransformerTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const Model> model_ = PresetModel(GetParam());
  const ModelConfig& config_ = model_->config();
};

INSTANTIATE_TEST_SUITE_P(Small, TransformerTest, ::testing::ValuesIn(SmallPresets()),
                         [](const auto& param) { return TestName(param.param); });

// What a sequence of steps leaves behind.
struct Outcome {
  std::vector<uint32_t> logits;
  Digest cache;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

void PrintTo(const Outcome& outcome, std::ostream* out) { *out << outcome.cache.Hex(); }

Outcome Step(Transformer& transformer, ProbeCache& cache, std::span<const int32_t> tokens,
             std::span<const int32_t> positions) {
  const auto logits = Bits(transformer.Forward(tokens, positions, cache));
  return {logits, DigestOfCache(cache.inner())};
}

TEST_P(TransformerTest, TheDirectPathEqualsTheLegacyPath) {
  Transformer transformer(model_);
  const auto direct = NewProbe(*model_, 64);
  const auto legacy = NewProbe(*model_, 64);
  legacy->refuse_slots = true;
  std::map<CacheCall, int32_t> calls;
  direct->on_call = [&](CacheCall call, int32_t, bool before) { calls[call] += before ? 1 : 0; };
  int32_t steps = 0;
  for (const auto& positions : {Iota(0, 7), Iota(7, 1), Iota(8, 1), Iota(9, 17), Iota(4, 3)}) {
    const auto tokens = SomeTokens(config_, static_cast<int32_t>(positions.size()));
    EXPECT_EQ(Step(transformer, *direct, tokens, positions),
              Step(transformer, *legacy, tokens, positions));
    ++steps;
  }
  // The parity is not vacuous: each layer and step took the direct path once.
  EXPECT_EQ(calls[CacheCall::kReserve], steps * config_.num_layers);
  EXPECT_EQ(calls[CacheCall::kCommit], steps * config_.num_layers);
  EXPECT_EQ(calls[CacheCall::kUpdate], 0);
}

// engine/ARITHMETIC.md: the instruction set changes no bit, from the tokens to the logits.
TEST_P(TransformerTest, EveryKernelTableGivesTheSameBits) {
  std::optional<Outcome> expected;
  for (const KernelTable* kernels : AvailableKernels()) {
    Transformer transformer(model_, {.kernels = kernels});
    EXPECT_EQ(&transformer.kernels(), kernels);
    const auto cache = NewProbe(*model_, 32);
    Step(transformer, *cache, SomeTokens(config_, 13), Iota(0, 13));
    const Outcome outcome = Step(transformer, *cache, {{3}}, {{13}});
    if (!expected) expected = outcome;
    EXPECT_EQ(outcome, *expected) << kernels->name;
  }
}

TEST_P(TransformerTest, CuttingThePrefillChangesNoBit) {
  constexpr int32_t kTokens = 19;
  const auto tokens = SomeTokens(config_, kTokens);
  Transformer whole(model_);
  const auto reference = NewProbe(*model_, 32);
  const Outcome expected = Step(whole, *reference, tokens, Iota(0, kTokens));
  for (int32_t step : {1, 3, 18, 19, 20}) {
    Transformer pieces(model_, {.max_step_tokens = step});
    const auto cache = NewProbe(*model_, 32);
    EXPECT_EQ(Step(pieces, *cache, tokens, Iota(0, kTokens)), expected) << step;
    const auto limited = NewProbe(*model_, 32);
    limited->step_rows = step;
    EXPECT_EQ(Step(whole, *limited, tokens, Iota(0, kTokens)), expected) << step;
  }
  const auto cuts = NewProbe(*model_, 32);
  Step(whole, *cuts, std::span(tokens).first(11), Iota(0, 11));
  EXPECT_EQ(Step(whole, *cuts, std::span(tokens).subspan(11), Iota(11, kTokens - 11)), expected);
}

TEST_P(TransformerTest, NoStepIsLongerThanTheCacheTakes) {
  Transformer transformer(model_, {.max_step_tokens = 6});
  const auto cache = NewProbe(*model_, 32);
  cache->step_rows = 4;
  RecordingTrace trace;
  transformer.Forward(SomeTokens(config_, 11), Iota(0, 11), *cache, &trace);
  for (const auto& entry : trace.entries()) EXPECT_LE(entry.positions.size(), 4u);
}

TEST_P(TransformerTest, AViewForEachQueryGivesTheSameBits) {
  Transformer transformer(model_);
  const auto once = NewProbe(*model_, 32);
  const auto each = NewProbe(*model_, 32);
  each->view_per_query = true;
  const std::vector<int32_t> positions = {0, 1, 2, 5};
  const auto tokens = SomeTokens(config_, 4);
  EXPECT_EQ(Step(transformer, *each, tokens, positions),
            Step(transformer, *once, tokens, positions));
  std::vector<int32_t> expected_queries;
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    expected_queries.insert(expected_queries.end(), positions.begin(), positions.end());
  }
  EXPECT_EQ(each->query_positions(), expected_queries);
  EXPECT_EQ(each->views(), 0);
  EXPECT_EQ(once->views(), config_.num_layers);
  EXPECT_TRUE(once->query_positions().empty());
}

// [F2] Each query is masked by its own position, not by its index in the step.
TEST_P(TransformerTest, GapsAreMaskedByPosition) {
  Transformer transformer(model_);
  const std::vector<int32_t> positions = {0, 1, 5, 7, 8, 12};
  const auto tokens = SomeTokens(config_, 6);
  const auto one_by_one = NewProbe(*model_, 32);
  for (size_t n = 1; n <= positions.size(); ++n) {
    const auto single = Step(transformer, *one_by_one, {&tokens[n - 1], 1}, {&positions[n - 1], 1});
    const auto together = NewProbe(*model_, 32);
    EXPECT_EQ(
        Step(transformer, *together, std::span(tokens).first(n), std::span(positions).first(n)),
        single)
        << n << " tokens";
  }
  EXPECT_EQ(one_by_one->length(0), 13);
}

// The rows of a gap are +0.0, and count as rows: [0, 1, 5] is not the same text as [0, 1, 2].
TEST_P(TransformerTest, GapRowsAreReadAsZeros) {
  Transformer transformer(model_);
  const auto gap = NewProbe(*model_, 32);
  const auto zeros = NewProbe(*model_, 32);
  const auto tokens = SomeTokens(config_, 3);
  transformer.Forward(std::span(tokens).first(2), Iota(0, 2), *zeros);
  const std::vector<float> nothing(static_cast<size_t>(3 * config_.kv_dim()), 0.0f);
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    zeros->inner().Update(layer, Iota(2, 3), nothing, nothing);
  }
  const Outcome expected = Step(transformer, *zeros, std::span(tokens).subspan(2), {{5}});
  EXPECT_EQ(Step(transformer, *gap, tokens, {{0, 1, 5}}), expected);
}

TEST_P(TransformerTest, RewritingAPositionSeesOnlyTheRowsBelowIt) {
  Transformer transformer(model_);
  const auto tokens = SomeTokens(config_, 12);
  const std::vector<int32_t> replacement = {tokens[11], tokens[10]};
  const auto rewritten = NewProbe(*model_, 32);
  const auto rolled_back = NewProbe(*model_, 32);
  transformer.Forward(std::span(tokens).first(10), Iota(0, 10), *rewritten);
  transformer.Forward(std::span(tokens).first(10), Iota(0, 10), *rolled_back);
  rolled_back->Rollback(3);
  const auto expected = Bits(transformer.Forward(replacement, Iota(3, 2), *rolled_back));
  EXPECT_EQ(Bits(transformer.Forward(replacement, Iota(3, 2), *rewritten)), expected);
  EXPECT_EQ(rewritten->current_length(), 10);  // [U5]
  rewritten->Rollback(5);
  EXPECT_EQ(DigestOfCache(rewritten->inner()), DigestOfCache(rolled_back->inner()));
}

TEST_P(TransformerTest, LaterRowsChangeNoEarlierRow) {
  Transformer transformer(model_);
  auto tokens = SomeTokens(config_, 9);
  RecordingTrace first, second;
  transformer.ForwardUncached(tokens, &first);
  tokens[6] = (tokens[6] + 1) % config_.vocab_size;
  transformer.ForwardUncached(tokens, &second);
  for (size_t i = 0; i < first.entries().size(); ++i) {
    const auto& a = first.entries()[i];
    const auto& b = second.entries()[i];
    if (a.positions.size() == 1) continue;  // the head reads the last token alone
    const auto rows = static_cast<size_t>(6 * a.width);
    EXPECT_EQ(Bits(std::span(a.rows).first(rows)), Bits(std::span(b.rows).first(rows)));
    EXPECT_NE(Bits(a.rows), Bits(b.rows)) << StageName(a.stage);
  }
}

// Adds a row of its own to each projection, chosen by the bits of the input so that wrong input
// shows, and notes what it was asked for.
class NotingHook final : public ProjectionHook {
 public:
  void Apply(int32_t layer, Projection projection, std::span<const float> input,
             std::span<float> output, int32_t n) const override {
    calls_.push_back({layer, projection, input.size(), output.size(), n});
    const size_t width = output.size() / static_cast<size_t>(n);
    const size_t input_width = input.size() / static_cast<size_t>(n);
    for (size_t i = 0; i < output.size(); ++i) {
      output[i] += 0.25f * input[i / width * input_width + i % input_width];
    }
  }

  struct Call {
    int32_t layer;
    Projection projection;
    size_t inputs, outputs;
    int32_t n;
    friend bool operator==(const Call&, const Call&) = default;
  };
  mutable std::vector<Call> calls_;
};

TEST_P(TransformerTest, TheHookRunsAlikeOnASlotAndOnScratch) {
  NotingHook hook;
  Transformer hooked(model_, {.hook = &hook});
  Transformer plain(model_);
  const auto direct = NewProbe(*model_, 32);
  const auto legacy = NewProbe(*model_, 32);
  const auto without = NewProbe(*model_, 32);
  legacy->refuse_slots = true;
  const auto tokens = SomeTokens(config_, 5);
  const Outcome expected = Step(hooked, *direct, tokens, Iota(0, 5));
  const auto direct_calls = std::exchange(hook.calls_, {});
  EXPECT_EQ(Step(hooked, *legacy, tokens, Iota(0, 5)), expected);
  EXPECT_EQ(hook.calls_, direct_calls);
  EXPECT_NE(Step(plain, *without, tokens, Iota(0, 5)), expected);
  std::vector<NotingHook::Call> wanted;
  const auto inputs = static_cast<size_t>(5 * config_.dim);
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    const auto q = static_cast<size_t>(5 * config_.q_dim());
    const auto kv = static_cast<size_t>(5 * config_.kv_dim());
    wanted.push_back({layer, Projection::kQuery, inputs, q, 5});
    wanted.push_back({layer, Projection::kKey, inputs, kv, 5});
    wanted.push_back({layer, Projection::kValue, inputs, kv, 5});
  }
  EXPECT_EQ(direct_calls, wanted);
}

// A hook that adds the bias is the bias: both come after the projection, before QK-norm and RoPE.
class BiasHook final : public ProjectionHook {
 public:
  explicit BiasHook(const Model& model) : model_(model) {}
  void Apply(int32_t layer, Projection projection, std::span<const float>, std::span<float> output,
             int32_t) const override {
    const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
    const std::vector<float>& bias = projection == Projection::kQuery ? w.bq
                                     : projection == Projection::kKey ? w.bk
                                                                      : w.bv;
    for (size_t i = 0; i < output.size(); ++i) output[i] += bias[i % bias.size()];
  }

 private:
  const Model& model_;
};

// Reserve, compute in place, commit, read: [R4] leaves the slot to the writer until the commit, and
// what is committed is finished.
TEST(TransformerHookTest, RowsAreFinishedBetweenReserveAndCommit) {
  const auto model = PresetModel("tiny-bias-qknorm-6x2-q8_0");
  std::string events;
  std::vector<LayerDigest> committed;
  class EventHook final : public ProjectionHook {
   public:
    explicit EventHook(std::string* events) : events_(*events) {}
    void Apply(int32_t, Projection projection, std::span<const float>, std::span<float>,
               int32_t) const override {
      events_ += "qkv"[static_cast<int>(projection)];
    }

   private:
    std::string& events_;
  };
  const EventHook hook(&events);
  Transformer transformer(model, {.hook = &hook});
  const auto cache = NewProbe(*model, 16);
  cache->on_call = [&](CacheCall call, int32_t layer, bool before) {
    if (before) events += "RCUVQ"[static_cast<int>(call)];
    if (call == CacheCall::kCommit && !before) {
      committed.push_back(DigestOfLayer(cache->inner(), layer));
    }
  };
  transformer.Forward(SomeTokens(model->config(), 3), Iota(0, 3), *cache);
  EXPECT_EQ(events, "RqkvCVRqkvCVRqkvCVRqkvCVRqkvCV");
  ASSERT_EQ(committed.size(), 5u);
  for (int32_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(DigestOfLayer(cache->inner(), layer), committed[static_cast<size_t>(layer)]);
  }
}

TEST(TransformerHookTest, AddingTheBiasByHookGivesTheSameBits) {
  for (const char* preset : {"tiny-bias-6x2-f16", "tiny-bias-qknorm-6x2-q8_0"}) {
    const auto biased = PresetModel(preset);
    EditableImage image(biased->file());
    std::erase_if(image.tensors, [](const auto& t) { return t.name.ends_with(".bias"); });
    const auto bare = Model::Load(image.Build());
    const BiasHook hook(*biased);
    Transformer a(biased), b(bare, {.hook = &hook}), c(bare);
    const auto tokens = SomeTokens(biased->config(), 6);
    const auto expected = Bits(a.ForwardUncached(tokens));
    EXPECT_EQ(Bits(b.ForwardUncached(tokens)), expected) << preset;
    EXPECT_NE(Bits(c.ForwardUncached(tokens)), expected) << preset;
  }
}

TEST(TransformerOptionsTest, WorkspaceGrowsWithWhatItSees) {
  const auto model = PresetModel("tiny-segments-6x2-q8_0");
  Transformer transformer(model);
  const auto small = NewProbe(*model, 8);
  const auto large = NewProbe(*model, 90);
  const auto tokens = SomeTokens(model->config(), 90);
  transformer.Forward(std::span(tokens).first(8), Iota(0, 8), *small);
  const auto grown = Bits(transformer.Forward(tokens, Iota(0, 90), *large));
  Transformer fresh(model);
  EXPECT_EQ(Bits(fresh.ForwardUncached(tokens)), grown);
  const auto again = NewProbe(*model, 8);
  transformer.Forward(std::span(tokens).first(8), Iota(0, 8), *again);
  EXPECT_EQ(DigestOfCache(again->inner()), DigestOfCache(small->inner()));
}

// RoPE tables and scores grow by doubling past their first size of 8192 positions.
TEST(TransformerOptionsTest, LongContextsGrowTheTables) {
  EditableImage image(PresetModel("tiny-mha-4x4-f32")->file());
  image.metadata["llama.context_length"] = uint64_t{20000};
  const auto model = Model::Load(image.Build());
  Transformer transformer(model);
  SimpleKvCache cache(model->config().geometry(20000));
  for (int32_t position : {0, 8191, 8192, 16383, 16384, 19999}) {
    const auto grown = Bits(transformer.Forward({{5}}, {{position}}, cache));
    Transformer fresh(model);
    EXPECT_EQ(Bits(fresh.Forward({{5}}, {{position}}, cache)), grown) << position;
  }
}

TEST(TransformerOptionsTest, AStepHoldsAtLeastOneToken) {
  const auto model = PresetModel("tiny-mha-4x4-f32");
  EXPECT_THROW(Transformer(model, {.max_step_tokens = 0}), std::invalid_argument);
  EXPECT_THROW(Transformer(model, {.max_step_tokens = -1}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::testing
