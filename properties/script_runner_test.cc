// Every registered cache against the model cache over generated scripts, and that what is wrong is
// found and shrunk.
#include "properties/script_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <memory>
#include <string>

#include "caches/aligned_buffer.h"
#include "caches/registry.h"
#include "oracle/faulty_cache.h"
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

// Whether a cache of this kind can meet positions of the class at all.
bool Reachable(PositionClass position_class, const CacheSpec& spec) {
  switch (position_class) {
    case PositionClass::kCrossesBlock:
    case PositionClass::kEndsAtBlock:
    case PositionClass::kEndsBeforeBlock:
    case PositionClass::kBeginsAtBlock:
      return spec.block_size > 0;
    case PositionClass::kLongerThanWindow:
      return spec.window > 0 && spec.window < 20;  // no script's max_length is longer
    default:
      return true;
  }
}

bool Reachable(OperationClass operation_class, const CacheSpec& spec) {
  switch (operation_class) {
    case OperationClass::kInterleaved:
    case OperationClass::kRedo:
    case OperationClass::kRewriteAfterFork:
      return true;
    case OperationClass::kExhaustedOverReservation:  // pools of one block are taken by the slot
      return spec.grants_host_slots && spec.block_size > 0 && spec.block_size < 16;
    default:
      return spec.grants_host_slots;
  }
}

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
  for (size_t i = 0; i < kPositionClasses; ++i) {
    const auto position_class = static_cast<PositionClass>(i);
    if (!Reachable(position_class, spec)) continue;
    EXPECT_GT(counts.positions[i], 0) << PositionClassName(position_class);
  }
  for (size_t i = 0; i < kOperationClasses; ++i) {
    const auto operation_class = static_cast<OperationClass>(i);
    if (!Reachable(operation_class, spec)) continue;
    EXPECT_GT(counts.sequences[i], 0) << OperationClassName(operation_class);
  }
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
