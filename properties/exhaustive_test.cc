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

CacheScript Scope(const std::string& cache, int32_t layers, int32_t max_length, int32_t blocks) {
  const CacheSpec spec = ParseCacheSpec(cache);
  const int32_t dim = spec.head_dim_multiple == 1 ? 2 : spec.head_dim_multiple;
  return {.cache = cache, .geometry = {layers, 1, dim, max_length}, .blocks = blocks, .ops = {}};
}

int64_t Power(int64_t base, int32_t exponent) {
  return exponent == 0 ? 1 : base * Power(base, exponent - 1);
}

void ExpectHolds(const CacheScript& scope, int32_t operations) {
  const ExhaustiveCounts counts =
      RunExhaustive({.scope = scope, .operations = operations}, RegisteredSubject(scope.cache));
  ASSERT_FALSE(counts.finding) << scope.cache << ": " << counts.finding->clause << " "
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
  const CacheScript scope = Scope("paged/2", 1, 1, 1);
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
    ExpectHolds(Scope(spec.name, 2, 2, 0), 3);
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
    const CacheScript scope = Scope("simple", 1, 2, 0);
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
