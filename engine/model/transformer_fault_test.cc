// [F1] A step that throws leaves no row behind. [F2] A step that is refused wrote nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <stdexcept>

#include "caches/kv_checks.h"
#include "caches/simple_kv_cache.h"
#include "engine/model/test_support.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr int32_t kMaxLength = 32;

struct Planted : std::runtime_error {
  Planted() : std::runtime_error("planted") {}
};

// A step into a cache that already holds `held` rows.
struct Scenario {
  std::string name;
  int32_t held = 0;
  std::vector<int32_t> positions;
  int32_t max_step_tokens = 512;
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

const std::vector<Scenario>& Scenarios() {
  static const std::vector<Scenario> scenarios = {
      {"FirstPrefill", 0, Iota(0, 6)},
      {"Decode", 5, {5}},
      {"Append", 5, Iota(5, 4)},
      {"OverwriteInside", 8, Iota(2, 3)},
      {"OverwriteAndAppend", 6, Iota(4, 5)},
      {"OverwriteFromZero", 6, Iota(0, 3)},
      {"Gap", 4, {6, 7, 11}},
      {"GapFromNothing", 0, {3, 5}},
      {"SeveralSteps", 3, Iota(3, 8), 3},
      {"SeveralStepsOver", 9, Iota(2, 10), 4},
  };
  return scenarios;
}

class ThrowingStepTest : public ::testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    transformer_ = std::make_unique<Transformer>(
        model_, TransformerOptions{.max_step_tokens = GetParam().max_step_tokens});
    tokens_ = SomeTokens(model_->config(), static_cast<int32_t>(GetParam().positions.size()));
    const int32_t held = GetParam().held;
    if (held > 0) {
      // Not the tokens of the step, so that an overwritten row shows.
      const auto tokens = SomeTokens(model_->config(), held + 1);
      transformer_->Forward(std::span(tokens).subspan(1), Iota(0, held), held_);
    }
    const auto surviving = HeldCache();
    surviving->Rollback(SurvivingLength());
    surviving_ = DigestOfCache(surviving->inner());
  }

  std::unique_ptr<ProbeCache> HeldCache() { return std::make_unique<ProbeCache>(held_.Fork()); }

  int32_t SurvivingLength() const { return std::min(GetParam().held, GetParam().positions[0]); }

  void ExpectUndone(ProbeCache& cache, const std::string& where) {
    for (int32_t layer = 0; layer < model_->config().num_layers; ++layer) {
      EXPECT_EQ(cache.length(layer), SurvivingLength()) << where << ", layer " << layer;
      // No reservation is left open: committing the step's rows must be refused [C2].
      EXPECT_THROW(cache.inner().CommitSlot(layer, GetParam().positions), std::logic_error);
    }
    EXPECT_EQ(DigestOfCache(cache.inner()), surviving_) << where;
  }

  std::span<const float> Step(KvCache& cache, TraceSink* trace = nullptr) {
    return transformer_->Forward(tokens_, GetParam().positions, cache, trace);
  }

  std::shared_ptr<const Model> model_ = PresetModel("tiny-mha-4x4-f32");
  std::unique_ptr<Transformer> transformer_;
  SimpleKvCache held_{model_->config().geometry(kMaxLength)};  // as it is before the step
  Digest surviving_;  // of the old rows below the step, which is what a throw must leave
  std::vector<int32_t> tokens_;
};

INSTANTIATE_TEST_SUITE_P(Steps, ThrowingStepTest, ::testing::ValuesIn(Scenarios()),
                         [](const auto& param) { return param.param.name; });

// Counts the calls of a step, then throws at each of them in turn.
TEST_P(ThrowingStepTest, AtAnyCacheCallIsUndone) {
  for (bool legacy : {false, true}) {
    for (bool per_query : {false, true}) {
      int32_t calls = 0;
      {
        const auto cache = HeldCache();
        cache->refuse_slots = legacy;
        cache->view_per_query = per_query;
        cache->on_call = [&](CacheCall, int32_t, bool) { ++calls; };
        Step(*cache);
      }
      ASSERT_GE(calls, 4 * model_->config().num_layers);
      for (int32_t at = 0; at < calls; ++at) {
        const auto cache = HeldCache();
        cache->refuse_slots = legacy;
        cache->view_per_query = per_query;
        std::string where;
        int32_t seen = 0;
        cache->on_call = [&](CacheCall call, int32_t layer, bool before) {
          if (seen++ != at) return;
          where = "call " + std::to_string(static_cast<int>(call)) + " at layer " +
                  std::to_string(layer) + (before ? " before" : " after");
          throw Planted();
        };
        EXPECT_THROW(Step(*cache), Planted) << at;
        ExpectUndone(*cache, where);
      }
    }
  }
}

class ThrowingHook final : public ProjectionHook {
 public:
  void Apply(int32_t layer, Projection projection, std::span<const float>, std::span<float>,
             int32_t) const override {
    if (layer == at_layer && projection == at_projection) throw Planted();
  }
  int32_t at_layer = -1;
  Projection at_projection = Projection::kQuery;
};

TEST_P(ThrowingStepTest, InTheHookIsUndone) {
  ThrowingHook hook;
  transformer_ = std::make_unique<Transformer>(
      model_, TransformerOptions{.hook = &hook, .max_step_tokens = GetParam().max_step_tokens});
  for (int32_t layer = 0; layer < model_->config().num_layers; ++layer) {
    for (Projection projection : {Projection::kQuery, Projection::kKey, Projection::kValue}) {
      const auto cache = HeldCache();
      hook.at_layer = layer;
      hook.at_projection = projection;
      EXPECT_THROW(Step(*cache), Planted);
      ExpectUndone(*cache, "hook at layer " + std::to_string(layer));
    }
  }
}

class ThrowingTrace final : public TraceSink {
 public:
  explicit ThrowingTrace(int32_t at) : left_(at) {}
  void OnStage(const StageRows&) override {
    if (left_-- == 0) throw Planted();
  }

 private:
  int32_t left_;
};

TEST_P(ThrowingStepTest, InTheTraceIsUndone) {
  RecordingTrace all;
  {
    const auto cache = HeldCache();
    Step(*cache, &all);
  }
  for (size_t at = 0; at < all.entries().size(); ++at) {
    const auto cache = HeldCache();
    ThrowingTrace trace(static_cast<int32_t>(at));
    EXPECT_THROW(Step(*cache, &trace), Planted);
    ExpectUndone(*cache, std::string(StageName(all.entries()[at].stage)));
  }
}

TEST_P(ThrowingStepTest, CanBeRepeated) {
  const auto untouched = HeldCache();
  untouched->Rollback(SurvivingLength());
  const auto expected = Bits(Step(*untouched));
  const auto cache = HeldCache();
  cache->on_call = [](CacheCall call, int32_t layer, bool before) {
    if (call == CacheCall::kCommit && layer == 2 && before) throw Planted();
    if (call == CacheCall::kUpdate && layer == 2 && before) throw Planted();
  };
  EXPECT_THROW(Step(*cache), Planted);
  cache->on_call = nullptr;
  EXPECT_EQ(Bits(Step(*cache)), expected);
  EXPECT_EQ(DigestOfCache(cache->inner()), DigestOfCache(untouched->inner()));
}

std::vector<Scenario> ScenariosWhere(const std::function<bool(const Scenario&)>& wanted) {
  std::vector<Scenario> chosen;
  for (const Scenario& scenario : Scenarios()) {
    if (wanted(scenario)) chosen.push_back(scenario);
  }
  return chosen;
}

// Steps that make rows visible: the engine can see that they are missing.
class ForgottenWriteTest : public ThrowingStepTest {};

INSTANTIATE_TEST_SUITE_P(Steps, ForgottenWriteTest,
                         ::testing::ValuesIn(ScenariosWhere([](const Scenario& s) {
                           return s.positions.back() >= s.held;
                         })),
                         [](const auto& param) { return param.param.name; });

// A cache that does not hold what it promised is reported with the layer, and undone.
TEST_P(ForgottenWriteTest, IsNamedByLayer) {
  for (bool traced : {false, true}) {
    for (bool legacy : {false, true}) {
      const auto cache = HeldCache();
      cache->refuse_slots = legacy;
      cache->forget_layer = 2;
      DigestTrace trace;
      try {
        Step(*cache, traced ? &trace : nullptr);
        FAIL() << "accepted";
      } catch (const BrokenCache& error) {
        EXPECT_EQ(error.layer(), 2);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("layer 2"));
      }
      ExpectUndone(*cache, "forgotten write");
    }
  }
}

// Steps that a cache can grant a slot for.
class ShortSlotTest : public ThrowingStepTest {};

INSTANTIATE_TEST_SUITE_P(Steps, ShortSlotTest,
                         ::testing::ValuesIn(ScenariosWhere([](const Scenario& s) {
                           return AsRun(s.positions, kMaxLength).has_value();
                         })),
                         [](const auto& param) { return param.param.name; });

TEST_P(ShortSlotTest, IsNotWritten) {
  const auto cache = HeldCache();
  cache->missing_slot_floats = 1;
  EXPECT_THROW(Step(*cache), BrokenCache);
  ExpectUndone(*cache, "short slot");
}

// ---- F2 ----------------------------------------------------------------------------------------

class RefusedStepTest : public ::testing::Test {
 protected:
  RefusedStepTest() {
    transformer_.Forward(SomeTokens(model_->config(), 4), Iota(0, 4), *cache_);
    before_ = DigestOfCache(cache_->inner());
    writes_ = cache_->writes();
  }

  template <typename Exception>
  void ExpectRefused(std::span<const int32_t> tokens, std::span<const int32_t> positions,
                     const char* what) {
    EXPECT_THROW(transformer_.Forward(tokens, positions, *cache_), Exception) << what;
    EXPECT_EQ(cache_->writes(), writes_) << what;
    EXPECT_EQ(DigestOfCache(cache_->inner()), before_) << what;
  }

  std::shared_ptr<const Model> model_ = PresetModel("tiny-mha-4x4-f32");
  int32_t vocab_ = model_->config().vocab_size;
  int32_t context_ = model_->config().context_length;
  Transformer transformer_{model_};
  std::unique_ptr<ProbeCache> cache_ = NewProbe(*model_, kMaxLength);
  Digest before_;
  int32_t writes_ = 0;
};

TEST_F(RefusedStepTest, CountsThatDisagree) {
  ExpectRefused<std::invalid_argument>({}, {}, "nothing");
  ExpectRefused<std::invalid_argument>({{1}}, {}, "no position");
  ExpectRefused<std::invalid_argument>({}, {{4}}, "no token");
  ExpectRefused<std::invalid_argument>({{1, 2}}, {{4}}, "one position");
  ExpectRefused<std::invalid_argument>({{1}}, {{4, 5}}, "one token");
}

TEST_F(RefusedStepTest, PositionsThatDoNotIncrease) {
  ExpectRefused<std::invalid_argument>({{1, 2}}, {{4, 4}}, "equal");
  ExpectRefused<std::invalid_argument>({{1, 2}}, {{5, 4}}, "decreasing");
  ExpectRefused<std::invalid_argument>({{1, 2, 3}}, {{4, 6, 5}}, "decreasing at the end");
}

TEST_F(RefusedStepTest, PositionsOutsideTheCache) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  ExpectRefused<std::out_of_range>({{1}}, {{-1}}, "negative");
  ExpectRefused<std::out_of_range>({{1, 2}}, {{-1, 0}}, "negative first");
  ExpectRefused<std::out_of_range>({{1}}, {{kMaxLength}}, "one too far");
  ExpectRefused<std::out_of_range>({{1, 2}}, {{kMaxLength - 1, kMaxLength}}, "last one too far");
  ExpectRefused<std::out_of_range>({{1}}, {{kMax}}, "huge");
  ExpectRefused<std::out_of_range>({{1}}, {{-kMax - 1}}, "hugely negative");
  transformer_.Forward({{1}}, {{kMaxLength - 1}}, *cache_);  // the last position is inside
}

TEST_F(RefusedStepTest, PositionsOutsideTheModelsContext) {
  cache_ = NewProbe(*model_, context_ + 8);
  before_ = DigestOfCache(cache_->inner());
  writes_ = 0;
  ExpectRefused<std::out_of_range>({{1}}, {{context_}}, "one too far");
  ExpectRefused<std::out_of_range>({{1, 2}}, {{context_ - 1, context_}}, "last one too far");
  transformer_.Forward({{1}}, {{context_ - 1}}, *cache_);
}

TEST_F(RefusedStepTest, TokensOutsideTheVocabulary) {
  for (int32_t token :
       {-1, vocab_, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    ExpectRefused<std::out_of_range>({{token}}, {{4}}, "token");
    ExpectRefused<std::out_of_range>({{1, 2, token}}, {{4, 5, 6}}, "last token");
    EXPECT_THROW(transformer_.ForwardUncached({{1, token}}), std::out_of_range);
  }
  transformer_.Forward({{0, vocab_ - 1}}, {{4, 5}}, *cache_);
}

TEST_F(RefusedStepTest, CachesOfAnotherGeometry) {
  const KvGeometry right = model_->config().geometry(kMaxLength);
  for (KvGeometry wrong :
       {KvGeometry{right.num_layers + 1, right.num_kv_heads, right.head_dim, 32},
        KvGeometry{right.num_layers - 1, right.num_kv_heads, right.head_dim, 32},
        KvGeometry{right.num_layers, right.num_kv_heads / 2, right.head_dim, 32},
        // The same stride, cut into other heads.
        KvGeometry{right.num_layers, right.num_kv_heads * 2, right.head_dim / 2, 32}}) {
    cache_ = std::make_unique<ProbeCache>(std::make_unique<SimpleKvCache>(wrong));
    before_ = DigestOfCache(cache_->inner());
    writes_ = 0;
    ExpectRefused<std::invalid_argument>({{1}}, {{0}}, "geometry");
  }
}

TEST_F(RefusedStepTest, CachesThatTakeNoRows) {
  cache_->step_rows = 0;
  ExpectRefused<std::invalid_argument>({{1}}, {{4}}, "no rows");
}

// No rollback could tell the layers' old lengths apart again, so the step must not start.
TEST_F(RefusedStepTest, LayersThatAreShorterThanOthersAndTheStep) {
  const std::vector<float> row(static_cast<size_t>(model_->config().kv_dim()), 1.0f);
  cache_->inner().Update(1, {{7}}, row, row);
  before_ = DigestOfCache(cache_->inner());
  ExpectRefused<std::invalid_argument>({{1}}, {{8}}, "after all layers");
  ExpectRefused<std::invalid_argument>({{1}}, {{5}}, "between the lengths");
  // From the shortest layer's end on, every layer shrinks to the step's first position.
  cache_->on_call = [](CacheCall call, int32_t layer, bool) {
    if (call == CacheCall::kCommit && layer == 2) throw Planted();
  };
  EXPECT_THROW(transformer_.Forward({{1}}, {{4}}, *cache_), Planted);
  for (int32_t layer = 0; layer < 3; ++layer) EXPECT_EQ(cache_->length(layer), 4);
}

TEST_F(RefusedStepTest, UncachedTextBeyondTheContext) {
  EXPECT_THROW(transformer_.ForwardUncached({}), std::invalid_argument);
  const auto tokens = SomeTokens(model_->config(), context_ + 1);
  EXPECT_THROW(transformer_.ForwardUncached(tokens), std::out_of_range);
  transformer_.ForwardUncached(std::span(tokens).first(static_cast<size_t>(context_)));
}

TEST_F(RefusedStepTest, AGoodStepNeverRollsBack) {
  cache_->refuse_rollback = true;
  transformer_.Forward({{1, 2}}, {{4, 5}}, *cache_);
  transformer_.Forward({{1}}, {{2}}, *cache_);
}

}  // namespace
}  // namespace lockstep::testing
