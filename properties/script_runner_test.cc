// Every registered cache against the model cache over generated scripts, and that what is wrong is
// found and shrunk.
#include "properties/script_runner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <memory>
#include <string>

#include "caches/aligned_buffer.h"
#include "caches/registry.h"
#include "oracle/faulty_cache.h"
#include "properties/class_reach.h"
#include "properties/script_builder.h"

namespace lockstep {
namespace {

constexpr int32_t kOperations = 40;

class ScriptRunnerTest : public testing::TestWithParam<std::string> {};

std::vector<std::string> CacheNames() {
  std::vector<std::string> names;
  for (const CacheSpec& spec : AllCaches()) names.push_back(spec.name);
  // Blocks and windows that divide nothing, and a window that no script fills.
  for (const char* name :
       {"paged/3", "quantized/f16+q8_0/w2", "quantized/q4_0+f16/w5", "quantized/q8_0+f32/w64"}) {
    names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registered, ScriptRunnerTest, testing::ValuesIn(CacheNames()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST_P(ScriptRunnerTest, AgreesWithTheModelAndReachesEveryClass) {
  const CacheSpec spec = ParseCacheSpec(GetParam());
  const ScriptSubject subject = RegisteredSubject(GetParam());
  ScriptCounts counts;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const CacheScript script = GenerateScript(GetParam(), seed, kOperations);
    const ScriptRun run = RunScript(script, subject);
    ASSERT_FALSE(run.finding) << "seed " << seed << ": " << run.finding->clause << " "
                              << run.finding->what << "\n"
                              << ScriptText(ShrinkScript(script, subject));
    counts += run.counts;
  }
  EXPECT_THAT(MissedClasses(counts, {GetParam()}, {subject}), testing::IsEmpty());
  EXPECT_GT(counts.granted, spec.grants_host_slots ? 200 : -1);
  EXPECT_GT(counts.committed, spec.grants_host_slots ? 100 : -1);
  EXPECT_GT(counts.refused, 100);
  EXPECT_GT(counts.updated, 200);
  EXPECT_GT(counts.threw, 100);
  EXPECT_GT(counts.exhausted, spec.block_size > 0 ? 0 : -1);
  EXPECT_GT(counts.rolled_back, 50);
  EXPECT_GT(counts.forked, 20);
  EXPECT_GT(counts.restored, 5);
  EXPECT_GT(counts.rows_compared, 5000);
}

// A campaign that left a class out is told so by name, and one whose caches cannot reach it is not.
TEST(ClassReachTest, AMissedClassIsNamed) {
  ScriptCounts counts;
  counts.positions.fill(1);
  counts.sequences.fill(20'000);
  EXPECT_THAT(MissedClasses(counts, {"paged/4"}, {RegisteredSubject("paged/4")}),
              testing::IsEmpty());
  counts.positions[static_cast<size_t>(PositionClass::kEndsPastBlock)] = 0;
  counts.positions[static_cast<size_t>(PositionClass::kLongerThanWindow)] = 0;
  counts.sequences[static_cast<size_t>(OperationClass::kForkOverReservation)] = 0;
  const auto missed = [&](const std::string& cache) {
    return MissedClasses(counts, {cache}, {RegisteredSubject(cache)});
  };
  EXPECT_THAT(missed("simple"), testing::ElementsAre("fork_over_reservation"));
  EXPECT_THAT(missed("paged/4"), testing::ElementsAre("ends_past_block", "fork_over_reservation"));
  EXPECT_THAT(missed("ring/w6-0+3"),
              testing::ElementsAre("longer_than_window", "fork_over_reservation"));
  EXPECT_THAT(missed("quantized/q8_0+q4_0/w4"), testing::ElementsAre("longer_than_window"));
  EXPECT_THAT(missed("quantized/q8_0+q8_0/w0"), testing::IsEmpty());
  ScriptSubject alone = RegisteredSubject("simple");
  alone.forks = false;
  EXPECT_THAT(MissedClasses(counts, {"simple"}, {alone}), testing::IsEmpty());

  const std::string table = ClassTable(counts);
  EXPECT_THAT(table, testing::HasSubstr("  positions: empty 1, append 1, "));
  EXPECT_THAT(table, testing::HasSubstr(" ends_past_block 0,"));
  EXPECT_THAT(table, testing::HasSubstr(" rewrite_after_fork 20k\n"));
}

ScriptSubject Planted(const std::string& cache, const Plant& plant) {
  ScriptSubject subject = RegisteredSubject(cache);
  subject.make = [make = subject.make, plant](const CacheScript& script) {
    return std::make_unique<FaultyCache>(make(script), plant);
  };
  return subject;
}

// The first script that finds the plant, shrunk; empty when none of the first does.
CacheScript FirstFinding(const std::string& cache, const ScriptSubject& subject) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const CacheScript script = GenerateScript(cache, seed, kOperations);
    if (RunScript(script, subject).finding) return ShrinkScript(script, subject);
  }
  return {};
}

// Whether the plant is a fault in a cache of this kind at all.
bool IsAFault(PlantKind kind, const CacheSpec& spec) {
  if (kind == PlantKind::kSkipCommit || kind == PlantKind::kRefuseReserve) {
    return spec.grants_host_slots;
  }
  return true;
}

TEST(ScriptShrinkTest, PlantsAreFoundAndNineOfTenShrinkToSixOperations) {
  int plants = 0, small = 0;
  for (const char* cache :
       {"simple", "paged/1", "paged/4", "quantized/q8_0+q8_0/w0", "quantized/f32+q4_0/w4"}) {
    for (const PlantInfo& info : KnownPlants()) {
      if (!IsAFault(info.kind, ParseCacheSpec(cache))) continue;
      Plant plant;
      plant.kind = info.kind;
      plant.byte = 3;  // shows whatever the row is stored as
      const CacheScript shrunk = FirstFinding(cache, Planted(cache, plant));
      ASSERT_FALSE(shrunk.ops.empty()) << info.name << " is not found in " << cache;
      ++plants;
      small += shrunk.ops.size() <= 6 ? 1 : 0;
      EXPECT_LE(shrunk.ops.size(), 8u) << info.name << " in " << cache << "\n"
                                       << ScriptText(shrunk);
      EXPECT_TRUE(RunScript(shrunk, Planted(cache, plant)).finding) << info.name;
      EXPECT_FALSE(RunScript(shrunk, RegisteredSubject(cache)).finding) << info.name;
      EXPECT_EQ(shrunk.geometry.num_layers, 1) << info.name << "\n" << ScriptText(shrunk);
    }
  }
  RecordProperty("shrunk", fmt::format("{} of {} to at most 6 operations", small, plants));
  EXPECT_GE(plants, 49);
  EXPECT_GE(10 * small, 9 * plants) << small << " of " << plants;
}

// A finding that depends on what the heap left in fresh memory could be neither shrunk nor
// replayed.
TEST(ScriptDeterminismTest, FreshMemoryOfASubjectHasAContent) {
  ScriptSubject subject = RegisteredSubject("simple");
  bool poisons = false;
  subject.make = [&](const CacheScript& script) {
    poisons = PoisonsNewMemory();
    return RegisteredSubject("simple").make(script);
  };
  EXPECT_FALSE(RunScript(GenerateScript("simple", 1, 5), subject).finding);
  EXPECT_TRUE(poisons);
}

TEST(ScriptShrinkTest, KeepsOnlyWhatTheFindingNeeds) {
  const std::string text =
      "cache simple layers=2 heads=1 dim=2 max=9\n"
      "clear\n"
      "update at=0..3 rows=1\n"
      "update layer=1 at=0..3 rows=2\n"
      "read\n"
      "rollback to=2\n"
      "update at=2 rows=5\n";
  const Plant plant = ParsePlant("drop-update:layer=1");
  const CacheScript shrunk = ShrinkScript(ParseScript(text, "test"), Planted("simple", plant));
  // The first step of a plant begins at layer 0.
  EXPECT_EQ(ScriptText(shrunk),
            "cache simple layers=2 heads=1 dim=1 max=1\n"
            "update at=0 rows=1\n"
            "update layer=1 at=0 rows=1\n");
}

}  // namespace
}  // namespace lockstep
