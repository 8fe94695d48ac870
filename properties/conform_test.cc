// The conformance kit on plug-ins that are right, on one as such caches are published, and on what
// levels 0 to 3 have to survive.
#include "properties/conform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "caches/test_paths.h"
#include "properties/conform_test_util.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Verdict = ClauseResult::Verdict;

void ExpectNoFailure(const ConformResult& result, const std::vector<std::string>& unsupported) {
  EXPECT_TRUE(result.conforms);
  for (const ClauseResult& r : result.clauses) {
    const bool declared = std::ranges::find(unsupported, r.clause) != unsupported.end();
    EXPECT_EQ(r.verdict, declared ? Verdict::kUnsupported : Verdict::kPass)
        << r.clause << " " << r.what << "\n"
        << ScriptText(r.script);
  }
}

TEST(ConformTest, TheCorrectExamplePassesEveryClauseOfEveryLevel) {
  const ConformResult result =
      Conform(OptionsFor(PluginLibrary::Load(LOCKSTEP_EXAMPLE_CONTIGUOUS)));
  EXPECT_GT(result.scripts, 1000);
  ExpectNoFailure(result, {"R3", "B3", "S1", "save"});
}

TEST(ConformTest, TheCorrectExampleIsUnder200LinesOfC) {
  std::ifstream file(SourceDir() + "/caches/examples/contiguous.c");
  int64_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_GT(lines, 100);
  EXPECT_LT(lines, 200);
}

// Everything that the ABI has, in C++ and with blocks.
TEST(ConformTest, AWholePluginInCxxPassesToo) {
  ExpectNoFailure(Conform(OptionsFor(PluginLibrary::Load(LOCKSTEP_PLUGIN_PAGED))),
                  {"R3", "fork threads"});
}

// Caches with rows on a device, behind the border: reading, rolling back, forking and restoring
// them by copies between the memories.
void LoadDevicePlugin(const std::string& cache, const std::string& fault) {
  setenv("LOCKSTEP_DEVICE_PLUGIN", cache.c_str(), 1);
  setenv("LOCKSTEP_DEVICE_PLUGIN_FAULT", fault.c_str(), 1);
}

class DevicePluginTest : public testing::TestWithParam<std::string> {};

TEST_P(DevicePluginTest, PassesEveryClauseButThoseOfSlots) {
  LoadDevicePlugin(GetParam(), "");
  ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_PLUGIN_DEVICE));
  options.scripts = 150;
  options.hostile_scripts = 10;
  const ConformResult result = Conform(options);
  EXPECT_GT(result.scripts, 300);
  ExpectNoFailure(result, {"R2", "R4", "R5", "R7", "C1", "C3", "B3", "blocks", "fork threads"});
}

INSTANTIATE_TEST_SUITE_P(Caches, DevicePluginTest,
                         testing::Values("cuda", "hybrid/1", "cuda-quantized/f32+f32/w0"),
                         [](const auto& i) {
                           std::string name = i.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST(DevicePluginFaultTest, EachIsFoundByItsClause) {
  for (const auto& [fault, clause] :
       {std::pair{"keep", "B1"}, std::pair{"gap", "V2"}, std::pair{"stale", "S1"}}) {
    LoadDevicePlugin("hybrid/1", fault);
    ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_PLUGIN_DEVICE));
    options.level = 3;
    options.scripts = 100;
    EXPECT_EQ(FindClause(Conform(options), clause).verdict, Verdict::kFail) << fault;
  }
}

// What such caches are published with, each shown by a script that a person can read at a glance.
TEST(ConformTest, TheTrustingExampleFailsAtEachOfItsMistakes) {
  const ConformResult result = Conform(OptionsFor(PluginLibrary::Load(LOCKSTEP_EXAMPLE_TRUSTING)));
  EXPECT_FALSE(result.conforms);
  const std::pair<const char*, const char*> mistakes[] = {
      {"C2, past max_length", "commit"},  // commit past MaxLength
      {"C2", "commit"},                   // commit without a reservation
      {"V2", "at="},                      // gap rows show old memory
      {"U5", "update"},                   // the length shrinks
      {"blocks", "reserve"},              // the block of an abandoned reservation leaks
  };
  for (const auto& [clause, part] : mistakes) {
    const ClauseResult& r = FindClause(result, clause);
    EXPECT_EQ(r.verdict, Verdict::kFail) << clause;
    EXPECT_GE(r.script.ops.size(), 1u) << clause;
    EXPECT_LE(r.script.ops.size(), 4u) << clause << ": " << r.what << "\n" << ScriptText(r.script);
    EXPECT_THAT(ScriptText(r.script), HasSubstr(part)) << clause;
  }
  EXPECT_EQ(FindClause(result, "B4").verdict, Verdict::kUnsupported) << "declares no forks";
  EXPECT_EQ(FindClause(result, "threads").verdict, Verdict::kPass) << "wrong, but not by threads";
}

TEST(ConformTest, LowerLevelsRunLess) {
  ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_EXAMPLE_TRUSTING));
  options.level = 0;
  options.scripts = 50;
  const ConformResult result = Conform(options);
  EXPECT_EQ(FindClause(result, "logits").verdict, Verdict::kNotRun);
  EXPECT_EQ(FindClause(result, "U5").verdict, Verdict::kNotRun);
  EXPECT_EQ(FindClause(result, "blocks").verdict, Verdict::kNotRun);
}

TEST(ConformTest, EqualSeedsFindTheSameScripts) {
  ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_EXAMPLE_TRUSTING));
  options.scripts = 60;
  options.level = 1;
  const ConformResult first = Conform(options);
  const ConformResult second = Conform(options);
  ASSERT_EQ(first.clauses.size(), second.clauses.size());
  for (size_t i = 0; i < first.clauses.size(); ++i) {
    EXPECT_EQ(first.clauses[i].verdict, second.clauses[i].verdict) << first.clauses[i].clause;
    EXPECT_EQ(first.clauses[i].script, second.clauses[i].script) << first.clauses[i].clause;
  }
}

}  // namespace
}  // namespace lockstep
