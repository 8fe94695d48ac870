// Explanations of goldens that no longer hold: the fault is planted into the present run, and the
// place, the values and the cause are what was planted.
#include "golden/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "caches/codec.h"
#include "golden/record.h"
#include "oracle/decorators.h"
#include "oracle/faulty_cache.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kScenario = R"(
why = "Rows of two chunks, a rollback and what is written after it."
covers = ["prefill_step"]
caches = ["simple", "paged/4"]
max_length = 24
script = """
prefill cuts=5,3 tokens=7
decode n=3
rollback to=7
decode n=2 tokens=3
"""
[model]
preset = "tiny-gqa-9x3-q8_0"
seed = 1
)";

Scenario TestScenario() { return ParseScenario(kScenario, "test", "test"); }

const GoldenFile& Golden() {
  static const GoldenFile golden =
      RecordGroup(TestScenario(), GroupsOf(TestScenario())[0], {}).golden;
  return golden;
}

Explanation ExplainPlant(const std::string& plant, const std::string& cache = "simple") {
  ExplainOptions options;
  options.subject = PlantedEngine(plant);
  return Explain(TestScenario(), Golden(), cache, options);
}

void ExpectCause(const Explanation& e, Cause cause) {
  EXPECT_EQ(CauseName(e.cause.cause), CauseName(cause)) << ExplanationText(e);
}

TEST(ExplainTest, AGoldenThatHoldsHasNothingToExplain) {
  const Explanation e = Explain(TestScenario(), Golden(), {}, {});
  EXPECT_TRUE(e.changes.empty());
  EXPECT_THAT(ExplanationText(e), HasSubstr("HOLDS"));
}

TEST(ExplainTest, ASwapOfKAndVIsSeenInTheCachesRows) {
  const Explanation e = ExplainPlant("swap-kv:layer=1,step=1");
  EXPECT_EQ(e.place.Place(), "op0 step1 seq0 layer1 cache_key");
  ExpectCause(e, Cause::kKvSwapped);
  EXPECT_EQ(e.old_side, OldSide::kExact);
  EXPECT_THAT(e.old_from, HasSubstr("cache paged/4"));
  EXPECT_EQ(e.positions, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(e.values.rows.size(), 3u);
  EXPECT_EQ(e.values.differing, e.values.elements);
  EXPECT_FALSE(e.downstream.empty());
  EXPECT_EQ(e.steps, 7);
}

TEST(ExplainTest, AStaleRowIsKnownByWhoWroteIt) {
  const Explanation e = ExplainPlant("stale-row:layer=1");
  EXPECT_EQ(e.place.Place(), "op3 step5 seq0 layer1 cache_key");
  ExpectCause(e, Cause::kStaleRow);
  EXPECT_THAT(e.cause.evidence, HasSubstr("what operation 0 wrote to position 7"));
}

TEST(ExplainTest, AViewOfTheRowBeforeIsAShiftedRow) {
  const Explanation e = ExplainPlant("stale-view:layer=2,step=1");
  EXPECT_EQ(e.place.Place(), "op0 step1 seq0 layer2 cache_key");
  ExpectCause(e, Cause::kShiftedRow);
}

TEST(ExplainTest, RowsThatWereNeverWrittenAreZeros) {
  ExpectCause(ExplainPlant("off-by-one:layer=1,step=2"), Cause::kUnwritten);
}

TEST(ExplainTest, ARowThatOnlyAttentionReadsIsFoundThere) {
  const Explanation e = ExplainPlant("flip-k:layer=1,position=3,element=5,byte=2,step=2");
  // No step writes the row again.
  EXPECT_EQ(e.place.Place(), "op1 step2 seq0 layer1 attention");
  ExpectCause(e, Cause::kSingleBit);
  EXPECT_THAT(e.side, HasSubstr("K of layer 1"));
  EXPECT_EQ(e.elements.size(), 1u);
  EXPECT_EQ(e.elements[0].position, 3);
  EXPECT_EQ(e.elements[0].element, 5);
}

TEST(ExplainTest, DecisionsAreExplainedWithoutRows) {
  ExpectCause(ExplainPlant("refuse-reserve:layer=1,step=1"), Cause::kWritePath);
  ExpectCause(ExplainPlant("keep-row:"), Cause::kLength);
}

constexpr std::string_view kForkScenario = R"(
why = "A fork takes over what its source holds exactly."
covers = ["fork_inside_block"]
caches = ["quantized/q8_0+q4_0/w4"]
max_length = 24
script = """
prefill cuts=6 tokens=7
fork seq=0 to=1
"""
[model]
preset = "tiny-gqa-9x3-q8_0"
seed = 1
)";

// Forks without the exact rows of their source: what is stored of them is all that is left.
class ForgetfulCache final : public ForwardingCache {
 public:
  explicit ForgetfulCache(std::unique_ptr<KvCache> inner) : ForwardingCache(std::move(inner)) {}
  std::unique_ptr<KvCache> Fork() override {
    auto fork = std::make_unique<ForgetfulCache>(inner().Fork());
    fork->forgot_ = current_length() > 0;
    return fork;
  }
  void View(int32_t layer, KvView* view) const override {
    inner().View(layer, view);
    if (!forgot_ || layer != 2) return;
    const int64_t stride = geometry().kv_stride();
    KvRows rows = DecodeRows(*view, stride);
    for (int32_t row = 0; row < view->length; ++row) {
      const std::span<float> key = std::span(rows.keys).subspan(static_cast<size_t>(row * stride),
                                                                static_cast<size_t>(stride));
      std::vector<std::byte> stored(static_cast<size_t>(RowBytes(RowType::kQ8_0, stride)));
      const std::vector<float> exact(key.begin(), key.end());
      EncodeRow(RowType::kQ8_0, exact, stored);
      DecodeRow(RowType::kQ8_0, stored, key);
    }
    shown_ = std::move(rows);
    view->segments.assign(1, {0, view->length, RowType::kF32, RowType::kF32,
                              reinterpret_cast<const std::byte*>(shown_.keys.data()),
                              reinterpret_cast<const std::byte*>(shown_.values.data())});
  }

 private:
  bool forgot_ = false;
  mutable KvRows shown_;
};

TEST(ExplainTest, AForkWithoutItsWindowIsKnownByItsStoredRows) {
  const Scenario scenario = ParseScenario(kForkScenario, "fork", "test");
  const GoldenFile golden = RecordGroup(scenario, GroupsOf(scenario)[0], {}).golden;
  ExplainOptions options;
  options.subject.make_cache = [](const CacheSpec& spec, const KvGeometry& geometry,
                                  int32_t blocks) {
    return std::make_unique<ForgetfulCache>(MakeScriptCache(spec, geometry, blocks));
  };
  const Explanation e = Explain(scenario, golden, {}, options);
  EXPECT_EQ(e.place.Place(), "op1 seq1 rows");
  ExpectCause(e, Cause::kWindow);
  EXPECT_EQ(e.side, "K of layer 2");
}

constexpr std::string_view kRestoreScenario = R"(
why = "What was saved is what is restored."
covers = ["restored"]
caches = ["simple"]
max_length = 24
script = """
prefill cuts=5 tokens=7
save
rollback to=2
restore
"""
[model]
preset = "tiny-gqa-9x3-q8_0"
seed = 1
)";

// Reads the K rows of a save as its V rows too.
class KeysRestoredCache final : public ForwardingCache {
 public:
  explicit KeysRestoredCache(std::unique_ptr<KvCache> inner) : ForwardingCache(std::move(inner)) {}
  std::unique_ptr<KvCache> Fork() override {
    return std::make_unique<KeysRestoredCache>(inner().Fork());
  }
  void LoadState(StateReader* reader) override {
    inner().LoadState(reader);
    restored_ = true;
  }
  void View(int32_t layer, KvView* view) const override {
    inner().View(layer, view);
    for (KvSegment& segment : view->segments) {
      if (restored_) segment.values = segment.keys;
    }
  }

 private:
  bool restored_ = false;
};

// No run gives the golden's rows, but the hash of what was saved is that of what is restored.
TEST(ExplainTest, RowsBehindAHashAreThoseOfTheSameHashElsewhere) {
  const Scenario scenario = ParseScenario(kRestoreScenario, "restore", "test");
  const GoldenFile golden = RecordGroup(scenario, GroupsOf(scenario)[0], {}).golden;
  ExplainOptions options;
  options.reference_only = true;
  options.subject.make_cache = [](const CacheSpec& spec, const KvGeometry& geometry,
                                  int32_t blocks) {
    return std::make_unique<KeysRestoredCache>(MakeScriptCache(spec, geometry, blocks));
  };
  const Explanation e = Explain(scenario, golden, {}, options);
  EXPECT_EQ(e.place.Place(), "op3 seq0 rows");
  ExpectCause(e, Cause::kKvSwapped);
  EXPECT_EQ(e.side, "V of layer 0");
  EXPECT_EQ(e.old_side, OldSide::kExact);
  EXPECT_THAT(e.old_from, HasSubstr("what sequence 0 holds after operation 0"));
}

// A table of kernels with one mistake, as an engine-wide change is.
struct MistakenKernels {
  explicit MistakenKernels(void (*change)(KernelTable*)) : table(SelectKernels()) {
    change(&table);
  }
  KernelTable table;
};

void RotateHalves(float* x, int32_t heads, int32_t head_dim, int32_t rope_dim, const float* cos,
                  const float* sin) {
  for (int32_t h = 0; h < heads; ++h) {
    for (int32_t i = 0; i < rope_dim / 2; ++i) {
      float& a = x[h * head_dim + i];
      float& b = x[h * head_dim + i + rope_dim / 2];
      const float turned = a * cos[i] - b * sin[i];
      b = a * sin[i] + b * cos[i];
      a = turned;
    }
  }
}

TEST(ExplainTest, AnotherKernelTableGivesTheOldSide) {
  MistakenKernels kernels([](KernelTable* table) { table->rope_interleaved = RotateHalves; });
  ExplainOptions options;
  options.kernels = &kernels.table;
  Explanation e = Explain(TestScenario(), Golden(), {}, options);
  EXPECT_EQ(e.place.Place(), "op0 step0 seq0 layer0 query_rope");
  ExpectCause(e, Cause::kRopePairing);
  EXPECT_EQ(e.old_side, OldSide::kExact);
  EXPECT_THAT(e.old_from, HasSubstr("kernels scalar"));
  EXPECT_FALSE(e.tried.front().agrees);

  // Without another table, as after a change of the engine, the reference knows about what.
  options.reference_only = true;
  e = Explain(TestScenario(), Golden(), {}, options);
  EXPECT_EQ(e.place.Place(), "op0 step0 seq0 layer0 query_rope");
  ExpectCause(e, Cause::kRopePairing);
  EXPECT_EQ(e.old_side, OldSide::kApproximate);
  EXPECT_THAT(ExplanationText(e), HasSubstr("about"));
}

TEST(ExplainTest, ARoundingIsTheOrderOfAReduction) {
  MistakenKernels kernels([](KernelTable* table) {
    table->rms_norm = [](const float* x, const float* weight, int32_t n, float eps, float* out) {
      SelectKernels("scalar").rms_norm(x, weight, n, eps, out);
      for (int32_t i = 0; i < n; i += 5) out[i] = out[i] * (1 + 0x1p-23f);
    };
  });
  ExplainOptions options;
  options.kernels = &kernels.table;
  for (const bool reference_only : {false, true}) {
    options.reference_only = reference_only;
    const Explanation e = Explain(TestScenario(), Golden(), {}, options);
    EXPECT_EQ(e.place.Place(), "op0 step0 seq0 layer0 attn_norm");
    ExpectCause(e, Cause::kReductionOrder);
  }
}

TEST(ExplainTest, MarksSayWhereAnythingChanged) {
  const Explanation e = ExplainPlant("swap-kv:layer=1,step=1");
  const auto changed = [&](int32_t step, int32_t layer) {
    return std::ranges::count_if(e.marks, [&](const StageMark& mark) {
      return mark.step == step && mark.layer == layer && mark.changed;
    });
  };
  EXPECT_EQ(changed(0, 0) + changed(0, 1) + changed(0, 2) + changed(1, 0), 0);
  EXPECT_EQ(changed(1, 1), 7);   // from the cache's K on
  EXPECT_EQ(changed(1, 2), 13);  // all
  EXPECT_EQ(e.step_names.size(), 7u);
}

}  // namespace
}  // namespace lockstep
