// The conformance kit on the example plug-ins, and on plug-ins that crash, hang or lack a function.
#include "properties/conform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <string>

#include "caches/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Verdict = ClauseResult::Verdict;

ConformOptions OptionsFor(std::shared_ptr<const PluginLibrary> plugin) {
  ConformOptions options;
  options.plugin = std::move(plugin);
  options.scripts = 400;
  return options;
}

const ClauseResult& Find(const ConformResult& result, const std::string& clause) {
  for (const ClauseResult& r : result.clauses) {
    if (r.clause == clause) return r;
  }
  throw std::runtime_error("no result for " + clause);
}

TEST(ConformTest, TheCorrectExamplePassesEveryClauseOfEveryLevel) {
  const ConformResult result =
      Conform(OptionsFor(PluginLibrary::Load(LOCKSTEP_EXAMPLE_CONTIGUOUS)));
  EXPECT_TRUE(result.conforms);
  EXPECT_EQ(result.scripts, 400);
  for (const ClauseResult& r : result.clauses) {
    if (r.clause == "R3") continue;  // of caches that grant no slots
    EXPECT_EQ(r.verdict, Verdict::kPass) << r.clause << " " << r.what << "\n"
                                         << ScriptText(r.script);
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
      {"R2", "reserve"},                  // the block of an abandoned reservation leaks
  };
  for (const auto& [clause, part] : mistakes) {
    const ClauseResult& r = Find(result, clause);
    EXPECT_EQ(r.verdict, Verdict::kFail) << clause;
    EXPECT_LE(r.script.ops.size(), 4u) << clause << ": " << r.what << "\n" << ScriptText(r.script);
    EXPECT_THAT(ScriptText(r.script), HasSubstr(part)) << clause;
  }
  EXPECT_EQ(Find(result, "B4").verdict, Verdict::kUnsupported) << "declares no forks";
}

TEST(ConformTest, LowerLevelsRunLess) {
  ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_EXAMPLE_TRUSTING));
  options.level = 0;
  options.scripts = 50;
  const ConformResult result = Conform(options);
  EXPECT_EQ(Find(result, "logits").verdict, Verdict::kNotRun);
  EXPECT_EQ(Find(result, "U5").verdict, Verdict::kNotRun);
}

// The correct table with one function replaced.
std::shared_ptr<const PluginLibrary> WithUpdate(decltype(lockstep_kv_plugin::update) update) {
  static const auto library = PluginLibrary::Load(LOCKSTEP_EXAMPLE_CONTIGUOUS);
  static std::deque<lockstep_kv_plugin> tables;  // a table outlives its caches, as a library does
  tables.push_back(library->table());
  tables.back().update = update;
  return PluginLibrary::FromTable(&tables.back());
}

lockstep_kv_status Crash(void*, int32_t, const int32_t*, int32_t n, const float*, const float*) {
  if (n > 2) std::abort();
  return LOCKSTEP_KV_OK;
}

lockstep_kv_status Hang(void*, int32_t, const int32_t*, int32_t, const float*, const float*) {
  while (true) pause();
}

TEST(ConformTest, ACrashIsAFindingAndTheRunGoesOn) {
  ConformOptions options = OptionsFor(WithUpdate(Crash));
  options.scripts = 60;
  options.level = 1;
  const ConformResult result = Conform(options);
  EXPECT_EQ(result.scripts, 60);
  const ClauseResult& crash = Find(result, "crash");
  EXPECT_THAT(crash.what, HasSubstr("SIGABRT"));
  ASSERT_EQ(crash.script.ops.size(), 1u) << ScriptText(crash.script);
  EXPECT_EQ(crash.script.ops[0].positions.size(), 3u);
}

TEST(ConformTest, AHangIsAFinding) {
  ConformOptions options = OptionsFor(WithUpdate(Hang));
  options.scripts = 1;
  options.operations = 1;
  options.seconds_max = 1;
  options.level = 1;
  for (options.seed = 1;; ++options.seed) {  // the first seed whose one operation is an update
    const ConformResult result = Conform(options);
    if (result.conforms) continue;
    EXPECT_THAT(Find(result, "hang").what, HasSubstr("did not return in 1 s"));
    return;
  }
}

std::string LoadError(const lockstep_kv_plugin* table) {
  try {
    PluginLibrary::FromTable(table);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(PluginLibraryTest, RefusesWhatIsNoPlugin) {
  EXPECT_THROW(PluginLibrary::Load("./no-such-library.so"), Error);
  EXPECT_THAT(LoadError(nullptr), HasSubstr("returns no table"));
  lockstep_kv_plugin table = PluginLibrary::Load(LOCKSTEP_EXAMPLE_CONTIGUOUS)->table();
  lockstep_kv_plugin broken = table;
  broken.abi_version = 2;
  EXPECT_THAT(LoadError(&broken), HasSubstr("is of ABI version 2, this is 1"));
  broken = table;
  broken.commit_slot = nullptr;
  EXPECT_THAT(LoadError(&broken), HasSubstr("has no commit_slot"));
  broken = table;
  broken.fork = nullptr;
  EXPECT_THAT(LoadError(&broken), HasSubstr("has no fork, which its features declare"));
  broken = table;
  broken.head_dim_multiple = 0;
  EXPECT_THAT(LoadError(&broken), HasSubstr("head_dim_multiple below 1"));
}

}  // namespace
}  // namespace lockstep
