// The conformance kit on plug-ins that are right, on one as such caches are published, and on what
// levels 0 to 3 have to survive.
#include "properties/conform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "caches/test_paths.h"
#include "properties/conform_test_util.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Verdict = ClauseResult::Verdict;

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
