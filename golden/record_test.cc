#include "golden/record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "oracle/faulty_cache.h"

namespace lockstep {
namespace {

// Every operation, failures on purpose among them.
constexpr std::string_view kEverything = R"(
prefill cuts=3,6 tokens=7
decode n=2
speculate n=3 accept=1 tokens=4
fork seq=0 to=1
decode seq=1 n=1 tokens=5
batch seq=2,0,1 cuts=5,1,3 tokens=5
cancel seq=0,1 cuts=2,1 at=17 tokens=3
batch seq=0,0 cuts=1,1 tokens=3
path seq=0 to=legacy
prefill seq=0 cuts=2 tokens=9
path seq=0 to=refuse1
prefill seq=0 cuts=2 tokens=9
save seq=0
rollback seq=0 to=6
rollback seq=0 to=60
decode n=1
restore seq=0
decode n=1 tokens=8
clear seq=1
prefill seq=1 cuts=30 tokens=2
prefill seq=1 cuts=4 tokens=2
end seq=2
path seq=3 to=legacy
)";

Scenario Everything(const std::string& preset) {
  return ParseScenario(fmt::format(R"(why = "Every operation once, failures among them."
covers = ["decode_step"]
caches = ["simple"]
max_length = 26
step = 5
script = """{}"""
[model]
preset = "{}"
seed = 3
[[gap]]
op = 0
after = 4
rows = 1
)",
                                   kEverything, preset),
                       "everything", "case.toml");
}

// On a model that sees all rows.
std::vector<std::string> CachesStoring(std::string_view rows) {
  std::vector<std::string> names;
  for (const CacheSpec& spec : AllCaches()) {
    if (!spec.windows.empty()) continue;
    if (RowsName(spec) == rows) names.push_back(spec.name);
  }
  return names;
}

std::set<std::string> AllRows() {
  std::set<std::string> rows;
  for (const CacheSpec& spec : AllCaches()) {
    if (spec.windows.empty()) rows.insert(RowsName(spec));
  }
  return rows;
}

void ExpectEqual(const GoldenFile& a, const GoldenFile& b, const std::string& what) {
  const auto changes = CompareGoldens(a, b);
  ASSERT_TRUE(changes.empty()) << what << ": " << changes.size()
                               << " changes, the first: " << changes.front().Sentence();
}

// The promise of record.h: one file, whatever runs it.
TEST(RecordTest, SameFactsForEveryCachePathKernelTableAndThreadCount) {
  const Scenario scenario = Everything("tiny-gqa-9x3-q8_0");
  for (const std::string& rows : AllRows()) {
    const std::vector<std::string> caches = CachesStoring(rows);
    const GoldenFile golden =
        Record(scenario, {.cache = caches[0], .kernels = &SelectKernels("scalar")}).golden;
    EXPECT_EQ(golden.header.rows, rows);
    const GoldenFile plain = FactsOfCache(golden, {});
    for (const std::string& cache : caches) {
      for (const bool legacy : {false, true}) {
        const RecordOptions options{.cache = cache, .legacy = legacy};
        ExpectEqual(plain, FactsOfCache(Record(scenario, options).golden, {}), cache);
      }
    }
    for (const KernelTable* kernels : AvailableKernels()) {
      ExpectEqual(golden, Record(scenario, {.cache = caches[0], .kernels = kernels}).golden,
                  std::string(kernels->name));
    }
    for (int32_t threads = 1; threads <= 16; threads += rows == "f32" ? 1 : 15) {
      ExpectEqual(golden, Record(scenario, {.cache = caches[0], .threads = threads}).golden,
                  fmt::format("{} threads", threads));
    }
  }
}

// What a test above compares is there: every kind of fact, and every failure as an outcome.
TEST(RecordTest, RecordsEveryKindOfFactAndFailure) {
  const GoldenFile golden =
      Record(Everything("tiny-gqa-9x3-q8_0"), {.cache = "quantized/q8_0+q4_0/w4"}).golden;
  std::set<std::string> names, outcomes;
  for (const Fact& fact : golden.facts) {
    names.emplace(fact.base_name());
    if (fact.name == "outcome") outcomes.insert(fact.value);
  }
  for (size_t stage = 0; stage <= static_cast<size_t>(Stage::kLogits); ++stage) {
    if (static_cast<Stage>(stage) == Stage::kFfnRouter) continue;  // of models with experts alone
    EXPECT_TRUE(names.contains(std::string(StageName(static_cast<Stage>(stage))))) << stage;
  }
  for (const char* name : {"run", "input", "top5", "sum", "length", "rows", "stored", "gate"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(outcomes,
            (std::set<std::string>{"done", "out of range", "invalid argument", "cancelled"}));
  EXPECT_EQ(ParseGoldenFile(golden.Text(), "recorded"), golden);
}

TEST(RecordTest, KeepsTheRowsThatItsDigestsAreOf) {
  const Recording recording =
      Record(Everything("tiny-mha-4x4-f32"), {.cache = "paged/4", .keep_values = true});
  ASSERT_FALSE(recording.steps.empty());
  size_t compared = 0;
  for (const Fact& fact : recording.golden.facts) {
    if (fact.step < 0) continue;
    ASSERT_LT(static_cast<size_t>(fact.step), recording.steps.size());
    const RecordedStep& step = recording.steps[static_cast<size_t>(fact.step)];
    EXPECT_EQ(step.op, fact.op);
    EXPECT_EQ(step.sequence, fact.sequence);
    if (fact.name == "logits") {
      EXPECT_EQ(DigestOfFloats(step.logits).Hex(), fact.value);
      ++compared;
    }
    for (const RecordingTrace::Entry& entry : step.entries) {
      if (entry.layer != fact.layer || StageName(entry.stage) != fact.name) continue;
      EXPECT_EQ(DigestOfFloats(entry.rows).Hex(), fact.value) << fact.Place();
      EXPECT_EQ(entry.positions, step.positions);
      EXPECT_EQ(step.tokens.size(), step.positions.size());
      ++compared;
    }
  }
  EXPECT_GT(compared, 400u);
}

// Wrong caches are recorded to their end, and differ in a fact.
TEST(RecordTest, EveryPlantChangesAFactAndIsRecordedToItsEnd) {
  const Scenario scenario = Everything("tiny-gqa-9x3-q8_0");
  for (const std::string cache : {"simple", "paged/4", "quantized/q8_0+q4_0/w4"}) {
    const GoldenFile golden = Record(scenario, {.cache = cache}).golden;
    for (const std::string plant :
         {"flip-k:layer=1,position=2,element=5,byte=3,step=4",
          "flip-v:layer=2,position=3,element=1,byte=3,step=2", "skip-commit:layer=1",
          "drop-update:layer=1", "swap-kv:layer=0,step=3", "write-past:layer=2",
          "off-by-one:layer=1", "stale-row:layer=1", "keep-row", "stale-view:layer=1",
          "refuse-reserve:layer=1"}) {
      const bool slots = ParseCacheSpec(cache).grants_host_slots;
      // Without slots nothing is committed or refused in another way.
      const bool idle = !slots && (plant.starts_with("skip-") || plant.starts_with("refuse-"));
      const Recording wrong = Record(scenario, {.cache = cache, .subject = PlantedEngine(plant)});
      const auto changes = CompareGoldens(golden, wrong.golden);
      EXPECT_EQ(changes.empty(), idle) << cache << ", " << plant;
      EXPECT_EQ(std::ranges::count(wrong.golden.facts, "outcome", &Fact::name),
                std::ssize(scenario.ops));
      EXPECT_EQ(ParseGoldenFile(wrong.golden.Text(), plant), wrong.golden);
    }
  }
}

// A driver is what stands between operations and the engine.
class SwappedLogits final : public EngineDriver {
 public:
  using EngineDriver::EngineDriver;
  std::span<const float> Step(std::span<const BatchSequence> batch) override {
    const std::span<const float> logits = EngineDriver::Step(batch);
    logits_.assign(logits.begin(), logits.end());
    if (batch.size() > 1) {
      std::rotate(logits_.begin(), logits_.begin() + std::ssize(logits_) / std::ssize(batch),
                  logits_.end());
    }
    return logits_;
  }

 private:
  std::vector<float> logits_;
};

TEST(RecordTest, AWrongDriverIsRecorded) {
  const Scenario scenario = Everything("tiny-mha-4x4-f32");
  const EngineSubject subject{
      .make_driver = [](Transformer& engine) { return std::make_unique<SwappedLogits>(engine); }};
  const auto changes =
      CompareGoldens(Record(scenario).golden, Record(scenario, {.subject = subject}).golden);
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes.front().place.name, "logits");
  EXPECT_EQ(changes.front().place.op, 5);
}

TEST(RecordTest, AGroupHasTheGatesOfAllAndTellsWhoDisagrees) {
  Scenario scenario = Everything("tiny-mha-4x4-f32");
  const RowsGroup group{"f32", {"simple", "paged/4", "paged/1"}};
  const MergedGolden merged = RecordGroup(scenario, group, {});
  ASSERT_TRUE(merged.disagreements.empty());
  for (const std::string& cache : group.caches) {
    ExpectEqual(FactsOfCache(merged.golden, cache), Record(scenario, {.cache = cache}).golden,
                cache);
  }
  EXPECT_EQ(ParseGoldenFile(merged.golden.Text(), "merged"), merged.golden);

  // A pool of three blocks is exhausted by one of them alone.
  scenario.blocks = 3;
  const MergedGolden apart = RecordGroup(scenario, {"f32", {"simple", "paged/4"}}, {});
  EXPECT_EQ(apart.cache, "paged/4");
  ASSERT_FALSE(apart.disagreements.empty());
}

TEST(RecordTest, GapsAreSteppedOverAndRefused) {
  const GoldenFile golden = Record(Everything("tiny-mha-4x4-f32"), {.cache = "simple"}).golden;
  const auto value = [&](int32_t step) {
    for (const Fact& fact : golden.facts) {
      if (fact.step == step && fact.name == "input") return fact.value;
    }
    return std::string();
  };
  EXPECT_TRUE(value(0).starts_with("at=0..2 ids=")) << value(0);
  EXPECT_TRUE(value(1).starts_with("at=3,5,6,7,8 ids=")) << value(1);
  EXPECT_TRUE(value(2).starts_with("at=9 ids=")) << value(2);
  for (const Fact& fact : golden.facts) {
    if (fact.op == 0 && fact.base_name() == "gate") {
      EXPECT_EQ(fact.value, "granted=6 refused=3 commits=6 updates=3");
    }
  }
}

}  // namespace
}  // namespace lockstep
