// The conformance kit on plug-ins with one deed each that no plug-in may do: it has to be found, by
// the clause it breaks, and the run has to go on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "properties/conform.h"
#include "properties/conform_test_util.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Verdict = ClauseResult::Verdict;

// The table is asked for anew, so it has this deed from now on.
ConformOptions OptionsForDeed(const std::string& deed) {
  setenv("LOCKSTEP_HOSTILE", deed.c_str(), 1);
  ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_PLUGIN_HOSTILE));
  options.scripts = 16;
  options.hostile_scripts = 4;
  return options;
}

std::vector<std::string> Failures(const ConformResult& result) {
  std::vector<std::string> clauses;
  for (const ClauseResult& r : result.clauses) {
    if (r.verdict == Verdict::kFail) clauses.push_back(r.clause);
  }
  return clauses;
}

TEST(HostilePluginTest, WithoutADeedItConforms) {
  const ConformResult result = Conform(OptionsForDeed("none:none"));
  EXPECT_TRUE(result.conforms) << fmt::format("{}", fmt::join(Failures(result), " "));
}

const std::vector<std::string> kCalls = {"create",      "destroy",         "length", "read_row",
                                         "update",      "rollback",        "clear",  "fork",
                                         "commit_slot", "try_reserve_slot"};

// The deed in each of these calls is a finding, in a script that a person can read.
void ExpectFound(const std::string& deed, const std::vector<std::string>& calls,
                 const std::string& clause, const std::string& what) {
  for (const std::string& call : calls) {
    SCOPED_TRACE(call + ":" + deed);
    ConformOptions options = OptionsForDeed(call + ":" + deed);
    options.level = 0;
    const ConformResult result = Conform(options);
    EXPECT_FALSE(result.conforms);
    const ClauseResult& r = FindClause(result, clause);
    EXPECT_EQ(r.verdict, Verdict::kFail);
    EXPECT_THAT(r.what, HasSubstr(what));
    EXPECT_LE(r.script.ops.size(), 3u) << ScriptText(r.script);
    EXPECT_EQ(result.scripts, options.scripts) << "the run goes on";
  }
}

TEST(HostileEndTest, ASignalInAnyCallIsAFinding) {
  ExpectFound("abort", kCalls, "crash", "ended by SIGABRT");
  ExpectFound("fault", {"update"}, "crash", "ended by SIGSEGV");
}

TEST(HostileEndTest, AnExitInAnyCallIsAFinding) {
  ExpectFound("exit", {"create", "destroy", "read_row", "update"}, "exit",
              "ended the process with status 0");
}

TEST(HostileEndTest, AnExceptionOutOfAnyCallIsAFinding) {
  std::vector<std::string> calls = kCalls;
  std::erase(calls, "destroy");
  ExpectFound("throw", calls, "border", "an exception left it");
  ExpectFound("throw", {"destroy"}, "crash", "SIGABRT");  // as out of any destructor
}

class HostileHangTest : public ::testing::TestWithParam<const char*> {};

TEST_P(HostileHangTest, IsAFindingAndEndsTheRunSoon) {
  ConformOptions options = OptionsForDeed(std::string(GetParam()) + ":hang");
  options.ms_max = 200;
  options.operations = 8;
  const ConformResult result = Conform(options);
  const ClauseResult& r = FindClause(result, "hang");
  EXPECT_EQ(r.verdict, Verdict::kFail);
  EXPECT_THAT(r.what, HasSubstr("did not return"));
  EXPECT_LE(r.script.ops.size(), 3u) << ScriptText(r.script);
  EXPECT_EQ(FindClause(result, "U5").verdict, Verdict::kNotRun) << "it is not proved";
}

INSTANTIATE_TEST_SUITE_P(Calls, HostileHangTest, ::testing::Values("update", "length"),
                         [](const auto& one) { return std::string(one.param); });

struct DeedCase {
  const char* deed;
  const char* clause;
  const char* what;
};

class HostileDeedTest : public ::testing::TestWithParam<DeedCase> {};

TEST_P(HostileDeedTest, BreaksItsClause) {
  ConformOptions options = OptionsForDeed(GetParam().deed);
  options.level = GetParam().clause == std::string("border") ? 0 : 4;
  if (options.level == 4) options.checks = {GetParam().clause};
  const ConformResult result = Conform(options);
  EXPECT_THAT(Failures(result), ::testing::Contains(GetParam().clause));
  const ClauseResult& r = FindClause(result, GetParam().clause);
  EXPECT_THAT(r.what, HasSubstr(GetParam().what));
  EXPECT_LE(r.script.ops.size(), 4u) << ScriptText(r.script);
}

INSTANTIATE_TEST_SUITE_P(
    Deeds, HostileDeedTest,
    ::testing::Values(
        DeedCase{"create:accept", "geometry", "create makes a cache of 0 layers"},
        DeedCase{"length:huge", "border", "2147483647 of at most"},
        DeedCase{"update:status", "border", "status 77 has no meaning"},
        DeedCase{"try_reserve_slot:null", "border", "handed out no memory"},
        DeedCase{"read_row:overrun", "bounds", "read_row went past the array"},
        DeedCase{"read_row:underrun", "bounds", "read_row went past the array: keys"},
        DeedCase{"update:overread", "bounds", "update went past the array: keys"},
        DeedCase{"update:scribble", "bounds", "update wrote to the array it may only read: keys"},
        DeedCase{"update:keep", "bounds", "update touched an array of an earlier call: positions"},
        DeedCase{"update:unchecked", "allocation", "ended by SIGSEGV"},
        DeedCase{"update:late", "allocation", "update: when its allocation 1 fails, the rows are"},
        DeedCase{"commit_slot:allocate", "allocation", "commit_slot: when its allocation 1 fails"},
        DeedCase{"update:leak", "memory", "24 bytes in 1 allocations are left"},
        DeedCase{"destroy:nothing", "memory", "are left when all caches are destroyed"},
        DeedCase{"update:garbage", "dirty", "subject"},
        DeedCase{"update:forget", "neighbours", "subject"},
        DeedCase{"update:scratch", "threads", "does not show its own rows"},
        DeedCase{"update:scratch", "fork threads", "does not show its own rows"},
        DeedCase{"clear:print", "process", "printed on standard output"},
        DeedCase{"update:close", "process", "descriptors"},
        DeedCase{"update:open", "process", "descriptors"},
        DeedCase{"rollback:child", "process", "a process was left behind"},
        DeedCase{"update:signal", "process", "signal handlers"},
        DeedCase{"update:locale", "process", "locale"},
        DeedCase{"create:rounding", "process", "floating-point environment"},
        DeedCase{"update:directory", "process", "working directory"}),
    [](const auto& one) {
      std::string name = fmt::format("{}_{}", one.param.deed, one.param.clause);
      std::ranges::replace_if(
          name, [](char c) { return c == ':' || c == ' '; }, '_');
      return name;
    });

TEST(HostilePluginTest, ACrashWhileLoadingIsSeenBeforeItHappensHere) {
  setenv("LOCKSTEP_HOSTILE", "none:none", 1);
  EXPECT_EQ(LoadFault(LOCKSTEP_PLUGIN_HOSTILE, 2000), "");
  EXPECT_EQ(LoadFault("./no-such-library.so", 2000), "") << "an error of loading is no fault";
}

// ---- Saves and blocks, which the paged plug-in has -----------------------------------------

ConformResult ConformPaged(const char* fault) {
  setenv("LOCKSTEP_PAGED_PLUGIN", fault, 1);
  ConformOptions options = OptionsFor(PluginLibrary::Load(LOCKSTEP_PLUGIN_PAGED));
  options.scripts = 60;
  options.hostile_scripts = 2;
  return Conform(options);
}

TEST(PagedPluginTest, ARestoreThatTrustsItsBytesIsFound) {
  const ConformResult result = ConformPaged("lenient");
  EXPECT_THAT(Failures(result), ::testing::ElementsAre("save"));
  EXPECT_THAT(FindClause(result, "save").what, HasSubstr("restore takes a save with a bit"));
}

TEST(PagedPluginTest, ASaveThatLosesARowIsFound) {
  EXPECT_THAT(Failures(ConformPaged("stale")), ::testing::Contains("S1"));
}

TEST(PagedPluginTest, ABlockTooManyIsFound) {
  EXPECT_THAT(Failures(ConformPaged("leak")), ::testing::Contains("B3"));
}

}  // namespace
}  // namespace lockstep
