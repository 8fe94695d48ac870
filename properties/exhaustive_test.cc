#include "properties/exhaustive.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "caches/registry.h"
#include "oracle/faulty_cache.h"

namespace lockstep {
namespace {

// The full tier: minutes, not seconds.
bool Full() {
  const char* full = std::getenv("LOCKSTEP_FULL");
  return full != nullptr && std::string(full) == "1";
}

ExhaustiveScope Scope(const std::string& cache, int32_t layers, int32_t max_length,
                      int32_t blocks) {
  const CacheSpec spec = ParseCacheSpec(cache);
  const int32_t dim = spec.head_dim_multiple == 1 ? 2 : spec.head_dim_multiple;
  return {{.cache = cache, .geometry = {layers, 1, dim, max_length}, .blocks = blocks, .ops = {}}};
}

int64_t Power(int64_t base, int32_t exponent) {
  return exponent == 0 ? 1 : base * Power(base, exponent - 1);
}

void ExpectHolds(const ExhaustiveScope& scope, int32_t operations) {
  const ExhaustiveCounts counts = RunExhaustive({.scope = scope, .operations = operations},
                                                RegisteredSubject(scope.script.cache));
  ASSERT_FALSE(counts.finding) << scope.script.cache << ": " << counts.finding->clause << " "
                               << counts.finding->what << "\n"
                               << ScriptText(counts.script);
  EXPECT_EQ(counts.scripts, Power(counts.letters, operations));
  int64_t covered = 0;
  for (int32_t n = 1; n <= operations; ++n) covered += Power(counts.letters, n);
  EXPECT_EQ(counts.covered, covered);
  testing::Test::RecordProperty("scripts", std::to_string(counts.covered));
}

// At each layer three calls with 1 + n + n * n lists of positions, n = max + 2, and a write; then
// max + 3 rollbacks, clear and read; then what needs sequences.
int64_t Letters(int32_t layers, int32_t max_length, bool sequences) {
  const int64_t n = max_length + 2;
  return layers * (3 * (1 + n + n * n) + 1) + max_length + 3 + 2 + (sequences ? 5 : 0);
}

TEST(ExhaustiveTest, TheAlphabetIsWholeAndHasNoLetterTwice) {
  for (const int32_t layers : {1, 2}) {
    for (const int32_t max_length : {1, 2, 3}) {
      for (const int32_t blocks : {0, 2}) {
        const auto letters = ExhaustiveAlphabet(Scope("paged/2", layers, max_length, blocks));
        EXPECT_EQ(static_cast<int64_t>(letters.size()), Letters(layers, max_length, blocks == 0));
        std::set<std::string> texts;
        for (const ScriptOp& op : letters) texts.insert(ScriptOpText(op));
        EXPECT_EQ(texts.size(), letters.size());
      }
    }
  }
}

TEST(ExhaustiveTest, EveryScriptOfTwoOperationsHoldsForEveryCache) {
  for (const CacheSpec& spec : AllCaches()) {
    ExpectHolds(Scope(spec.name, 2, 2, 0), 2);
    ExpectHolds(Scope(spec.name, 1, 3, 0), 2);
    if (spec.block_size > 0) ExpectHolds(Scope(spec.name, 2, 3, 2), 2);
  }
}

// What a scope is there for happens in it: blocks are crossed, windows and rings outgrown, rows
// forgotten.
TEST(ExhaustiveTest, TinyScopesLeaveBlocksWindowsAndRings) {
  for (const CacheSpec& spec : AllCaches()) {
    const ExhaustiveScope scope = TinyScope(spec.name);
    const ScriptSubject subject = RegisteredSubject(spec.name);
    ScriptSubject watched = subject;
    bool forgets = false;
    watched.observe = [&](const KvCache& cache, int32_t) {
      for (int32_t layer = 0; layer < 2; ++layer) {
        forgets = forgets || cache.first_position(layer) > 0;
      }
    };
    const ExhaustiveCounts counts = RunExhaustive({.scope = scope, .operations = 1}, watched);
    EXPECT_FALSE(counts.finding) << spec.name << ": " << counts.finding->what;
    const auto seen = [&](PositionClass position_class) {
      return counts.run.positions[static_cast<size_t>(position_class)] > 0;
    };
    const bool blocks = spec.block_size > 0, rings = spec.undo_rows > 0;
    EXPECT_EQ(seen(PositionClass::kCrossesBlock), blocks) << spec.name;
    EXPECT_EQ(seen(PositionClass::kEndsPastBlock), blocks) << spec.name;
    EXPECT_EQ(seen(PositionClass::kLongerThanWindow), rings || spec.window > 0) << spec.name;
    EXPECT_TRUE(seen(PositionClass::kEndsPastMax) && seen(PositionClass::kDuplicate) &&
                seen(PositionClass::kDecreasing) && seen(PositionClass::kNegative));
    EXPECT_EQ(forgets, rings) << spec.name;
    // Three operations of these are about a minute.
    EXPECT_LE(ExhaustiveAlphabet(scope).size(), 150u) << spec.name;
  }
}

// Around a border the first layer has all pairs of five positions, the others runs.
TEST(ExhaustiveTest, TheAlphabetAroundABorder) {
  const auto letters = [](const std::string& cache) {
    return static_cast<int64_t>(ExhaustiveAlphabet(TinyScope(cache)).size());
  };
  EXPECT_EQ(letters("simple"), Letters(2, 2, true));
  EXPECT_EQ(letters("paged/4"), 3 * (1 + 5 + 25 + 2) + 1 + 3 * (1 + 5 + 3 + 2) + 1 + 7 + 2 + 5);
  EXPECT_EQ(letters("paged/2"), 3 * (1 + 5 + 25 + 1) + 1 + 3 * (1 + 5 + 4 + 1) + 1 + 6 + 2 + 5);
  std::set<std::string> texts;
  for (const ScriptOp& op : ExhaustiveAlphabet(TinyScope("paged/2"))) {
    EXPECT_TRUE(texts.insert(ScriptOpText(op)).second) << ScriptOpText(op);
  }
  EXPECT_EQ(TinyScope("ring/w6-0+3").script.geometry.max_length, 13);
  EXPECT_EQ(TinyScope("paged/16").script.geometry.max_length, 17);
}

TEST(ExhaustiveTest, EveryScriptOfTwoOperationsHoldsInTinyScopes) {
  for (const CacheSpec& spec : AllCaches()) ExpectHolds(TinyScope(spec.name), 2);
}

// Long enough to forget rows, to come round and to be refused, in a ring and beside one.
TEST(ExhaustiveTest, EveryScriptOfTwoOperationsHoldsForTheSmallestRings) {
  ExpectHolds(Scope("ring/w1+1", 1, 5, 0), 2);
  ExpectHolds(Scope("ring/w2+1", 1, 5, 0), 2);
  ExpectHolds(Scope("ring/w1-0+2", 2, 4, 0), 2);
}

TEST(ExhaustiveTest, EveryScriptOfThreeOperationsHolds) {
  ExpectHolds(Scope("simple", 1, 1, 0), 3);
  ExpectHolds(Scope("paged/2", 1, 2, 1), 3);
  ExpectHolds(Scope("quantized/f16+f16/w1", 1, 1, 0), 3);
}

// What is cut by first letters is the whole: nothing is left out and nothing runs twice.
TEST(ExhaustiveTest, TheLettersAddUp) {
  const ExhaustiveScope scope = Scope("paged/2", 1, 1, 1);
  const ScriptSubject subject = RegisteredSubject("paged/2");
  const ExhaustiveCounts whole = RunExhaustive({.scope = scope, .operations = 3}, subject);
  ExhaustiveCounts sum;
  for (int32_t first = 0; first < whole.letters; ++first) {
    const auto part = RunExhaustive({.scope = scope, .operations = 3, .prefix = {first}}, subject);
    sum.scripts += part.scripts;
    sum.covered += part.covered;
    sum.run += part.run;
  }
  EXPECT_EQ(sum.scripts, whole.scripts);
  EXPECT_EQ(sum.covered, whole.covered);
  EXPECT_EQ(sum.run.rows_compared, whole.run.rows_compared);
  const auto one = RunExhaustive({.scope = scope, .operations = 2, .prefix = {1, 2}}, subject);
  EXPECT_EQ(one.scripts, 1);
  EXPECT_EQ(one.covered, 1);
}

TEST(ExhaustiveTest, FullTierLongerScriptsHold) {
  if (!Full()) GTEST_SKIP() << "LOCKSTEP_FULL=1 runs it";
  for (const CacheSpec& spec : AllCaches()) {
    ExpectHolds(TinyScope(spec.name), 3);
    if (spec.block_size > 0) ExpectHolds(Scope(spec.name, 1, 3, 2), 3);
  }
  ExpectHolds(Scope("simple", 1, 1, 0), 4);
  ExpectHolds(Scope("ring/w1+1", 1, 4, 0), 3);
  ExpectHolds(Scope("paged/2", 1, 2, 1), 4);
  ExpectHolds(Scope("quantized/f16+f16/w1", 1, 1, 0), 4);
}

// Every plant that needs no longer script than two or three operations is found, and nothing that
// is found is longer than it has to be.
TEST(ExhaustiveTest, PlantsAreFound) {
  for (const std::string plant :
       {"drop-update:layer=0", "swap-kv:layer=0", "write-past:layer=0", "off-by-one:layer=0",
        "refuse-reserve:layer=0", "keep-row", "stale-view:layer=0"}) {
    const ExhaustiveScope scope = Scope("simple", 1, 2, 0);
    ScriptSubject subject = RegisteredSubject("simple");
    subject.make = [make = subject.make, plant](const CacheScript& script) {
      return std::make_unique<FaultyCache>(make(script), ParsePlant(plant));
    };
    const ExhaustiveCounts counts = RunExhaustive({.scope = scope, .operations = 2}, subject);
    ASSERT_TRUE(counts.finding) << plant;
    EXPECT_LT(counts.scripts, Power(counts.letters, 2));
    EXPECT_TRUE(RunScript(counts.script, subject).finding) << plant;
    EXPECT_FALSE(RunScript(counts.script, RegisteredSubject("simple")).finding) << plant;
  }
}

}  // namespace
}  // namespace lockstep
