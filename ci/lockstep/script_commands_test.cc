// `lockstep replay`, `fuzz` and `conform`, as a user calls them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "ci/lockstep/test_process.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

std::string ScriptFile(const std::string& name, const std::string& text) {
  return WriteTestFile(name, std::as_bytes(std::span(text)));
}

constexpr const char* kScript =
    "cache paged/4 layers=2 heads=1 dim=2 max=9\n"
    "reserve at=0..2\nwrite rows=1\ncommit at=0..2\n"
    "update layer=1 at=0..2 rows=2\nrollback to=1\nupdate at=1,2 rows=4\n";

TEST(ReplayTest, AScriptThatFindsNothingHolds) {
  const ProcessResult result = RunLockstepCommand({"replay", ScriptFile("a.script", kScript)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("holds: 6 operations on paged/4"));
}

TEST(ReplayTest, APlantedFaultIsFoundAndShrunk) {
  const ProcessResult result = RunLockstepCommand(
      {"replay", ScriptFile("b.script", kScript), "--plant", "keep-row", "--shrink"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("length of layer"));
  EXPECT_THAT(result.out, HasSubstr("rollback"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("write")));
}

TEST(ReplayTest, WrongUseExitsWithTwoAndNamesThePlace) {
  EXPECT_EQ(RunLockstepCommand({"replay"}).exit_code, 2);
  const ProcessResult absent = RunLockstepCommand({"replay", "no-such-file"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("no-such-file: cannot be read"));
  const ProcessResult line = RunLockstepCommand(
      {"replay", ScriptFile("c.script", "cache simple layers=1 heads=1 dim=1 max=2\nupdat\n")});
  EXPECT_EQ(line.exit_code, 2);
  EXPECT_THAT(line.err, HasSubstr("line 2: unknown operation 'updat'"));
  const ProcessResult geometry = RunLockstepCommand(
      {"replay", ScriptFile("d.script", "cache simple layers=0 heads=1 dim=1 max=2\nclear\n")});
  EXPECT_EQ(geometry.exit_code, 2);
  EXPECT_THAT(geometry.err, HasSubstr("correct the first line"));
  const ProcessResult cache = RunLockstepCommand(
      {"replay", ScriptFile("e.script", "cache pagd/4 layers=1 heads=1 dim=1 max=2\nclear\n")});
  EXPECT_EQ(cache.exit_code, 2);
  EXPECT_THAT(cache.err, HasSubstr("is of no known form"));
}

constexpr const char* kEngineScript =
    "# an engine script\n"
    "engine tiny-untied-4x2-q8_0 cache=paged/4,quantized/q8_0+q4_0/w4 max=20 step=3 threads=2\n"
    "prefill cuts=3,1,2 tokens=7\nprefill seq=1 cuts=5 tokens=8\n"
    "fork to=2\nbatch seq=2,1,0 cuts=1,4,2 tokens=5\nspeculate n=3 accept=1\n"
    "cancel seq=0,1 cuts=1,1 at=30\nrollback to=3\ndecode n=2\nend seq=2\n";

TEST(ReplayTest, AnEngineScriptHoldsOnAnyThreadsAndTable) {
  const ProcessResult result =
      RunLockstepCommand({"replay", ScriptFile("g.script", kEngineScript)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("holds: 9 operations, "));
  EXPECT_THAT(result.out, HasSubstr("digest "));
  const ProcessResult other = RunLockstepCommand(
      {"replay", ScriptFile("g.script", kEngineScript), "--cache", "quantized/q8_0+q4_0/w1"});
  EXPECT_EQ(other.exit_code, 0) << other.out << other.err;
}

TEST(ReplayTest, AFaultUnderAnEngineScriptIsFoundAndShrunk) {
  const ProcessResult result =
      RunLockstepCommand({"replay", ScriptFile("h.script", kEngineScript), "--plant",
                          "flip-v:layer=1,position=0,element=2,byte=3,step=1", "--shrink"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FOUND after operation "));
  EXPECT_THAT(result.out, HasSubstr("\nengine tiny-"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("fork")));
}

TEST(ReplayTest, AnEngineScriptRunsOnAPlugin) {
  const std::string path = ScriptFile("j.script", kEngineScript);
  const ProcessResult right =
      RunLockstepCommand({"replay", path, "--plugin", LOCKSTEP_EXAMPLE_CONTIGUOUS});
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_THAT(right.out, HasSubstr("holds: 9 operations, "));
}

TEST(ReplayTest, SaysOnWhichPluginACacheScriptRan) {
  const std::string path = ScriptFile(
      "k.script", "cache simple layers=1 heads=1 dim=1 max=2\nupdate at=1 rows=1\nrollback to=1\n");
  const ProcessResult right =
      RunLockstepCommand({"replay", path, "--plugin", LOCKSTEP_EXAMPLE_CONTIGUOUS});
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_THAT(right.out, HasSubstr("holds: 2 operations on plugin:" LOCKSTEP_EXAMPLE_CONTIGUOUS));
}

TEST(ReplayTest, WrongEngineScriptsExitWithTwo) {
  const auto error_of = [](const std::string& text, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"replay", ScriptFile("i.script", text)};
    args.insert(args.end(), more.begin(), more.end());
    const ProcessResult result = RunLockstepCommand(args);
    EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(error_of("engine tiny-mha-4x4-f32 cache=simple max=9\nprefil cuts=1\n"),
              HasSubstr("line 2: unknown operation 'prefil'"));
#if !defined(__SANITIZE_ADDRESS__)  // which ends a process that asks for so much
  EXPECT_THAT(error_of("engine tiny-mha-4x4-f32 cache=paged/2147483647 max=9\nclear\n"),
              HasSubstr("correct the first line"));
#endif
  EXPECT_THAT(error_of("engine tiny-mha-4x4-f32 cache=simple max=9\nclear\n",
                       {"--cache", "quantized/q8_0+q8_0/w0"}),
              HasSubstr("--cache quantized/q8_0+q8_0/w0"));
}

TEST(FuzzTest, EqualSeedsGiveEqualDigestsAndACommitHashIsASeed) {
  const std::vector<std::string> args = {"fuzz", "--seed", "6f1ed002ab5595859014ebf0951522d9",
                                         "--scripts", "60"};
  const ProcessResult first = RunLockstepCommand(args);
  EXPECT_EQ(first.exit_code, 0) << first.out << first.err;
  const auto digest_of = [](const std::string& out) {
    const size_t at = out.find("digest ");
    return at == out.npos ? "" : out.substr(at, 7 + 32);
  };
  EXPECT_EQ(digest_of(first.out).size(), 39u) << first.out;
  EXPECT_EQ(digest_of(RunLockstepCommand(args).out), digest_of(first.out));
  EXPECT_NE(digest_of(RunLockstepCommand({"fuzz", "--seed", "2", "--scripts", "60"}).out),
            digest_of(first.out));
}

TEST(FuzzTest, APlantedFaultIsFoundKeptAndReplayed) {
  const std::string path = ScriptFile("found.script", "");
  const ProcessResult found = RunLockstepCommand({"fuzz", "--scripts", "500", "--cache", "simple",
                                                  "--plant", "stale-row:layer=0", "--out", path});
  EXPECT_EQ(found.exit_code, 1) << found.out << found.err;
  EXPECT_THAT(found.out, HasSubstr("repeat: lockstep replay --plant stale-row:layer=0"));
  EXPECT_EQ(RunLockstepCommand({"replay", path, "--plant", "stale-row:layer=0"}).exit_code, 1);
  EXPECT_EQ(RunLockstepCommand({"replay", path}).exit_code, 0) << "the cache itself is right";
}

// Scripts of one operation cannot show a row that comes back after a rollback: a fuzzer that cannot
// find the canary must not call itself green.
TEST(FuzzTest, WithoutItsCanaryTheCampaignIsInconclusive) {
  const ProcessResult result = RunLockstepCommand({"fuzz", "--scripts", "10", "--operations", "1"});
  EXPECT_EQ(result.exit_code, 3) << result.out;
  EXPECT_THAT(result.out, HasSubstr("a planted fault was not found"));
}

// Each target's planted fault is found, kept once for each place, and shown again from its file.
TEST(FuzzTest, EveryTargetFindsItsPlantedFault) {
  struct Planted {
    std::string target, plant, text;
  };
  for (const Planted& planted : {Planted{"caches", "stale-row:layer=0", "rollback"},
                                 Planted{"gguf", "other-exception", "gguf"},
                                 Planted{"tokenizer", "drop-last-byte", "text '"},
                                 Planted{"plugin", "invent-memory", "reserve"}}) {
    const std::string path = ScriptFile(planted.target + "-found.script", "");
    const ProcessResult found =
        RunLockstepCommand({"fuzz", "--target", planted.target, "--scripts", "4000", "--plant",
                            planted.plant, "--out", path});
    EXPECT_EQ(found.exit_code, 1) << planted.target << found.out << found.err;
    EXPECT_THAT(found.out, HasSubstr(planted.text)) << planted.target;
    EXPECT_EQ(RunLockstepCommand({"replay", path, "--plant", planted.plant}).exit_code, 1);
    EXPECT_EQ(RunLockstepCommand({"replay", path}).exit_code, 0) << planted.target;
  }
}

TEST(FuzzTest, AFolderKeepsEachPlaceOnceAndTheCampaignGoesOn) {
  const TemporaryFolder temporary;
  const std::string folder = temporary.File("findings/");
  const std::vector<std::string> args = {
      "fuzz",    "--scripts",       "300",   "--cache", "paged/2",
      "--plant", "swap-kv:layer=0", "--out", folder};
  const ProcessResult found = RunLockstepCommand(args);
  EXPECT_EQ(found.exit_code, 1) << found.out << found.err;
  EXPECT_THAT(found.out, HasSubstr("300 scripts"));
  const auto files = [&] {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      paths.push_back(entry.path());
    }
    return paths;
  };
  const size_t kept = files().size();
  EXPECT_GE(kept, 1u);
  EXPECT_EQ(RunLockstepCommand(args).exit_code, 1);
  EXPECT_EQ(files().size(), kept) << "the same faults have the same names";
  for (const std::string& path : files()) {
    EXPECT_EQ(RunLockstepCommand({"replay", path, "--plant", "swap-kv:layer=0"}).exit_code, 1);
  }
}

// A cache that ends the process, or never comes back, is a finding with the script that shows it.
TEST(FuzzTest, ACacheThatCrashesIsAFindingWithAScript) {
  struct Hostile {
    const char* deed;
    const char* place;
  };
  for (const Hostile& hostile :
       {Hostile{"rollback:abort", "[crash] the cache ended by SIGABRT"},
        Hostile{"rollback:fault", "[crash] the cache ended by SIGSEGV"},
        Hostile{"clear:exit", "[crash] the cache ended the process with status 0"}}) {
    setenv("LOCKSTEP_HOSTILE", hostile.deed, 1);
    const std::string cache = std::string("plugin:") + LOCKSTEP_PLUGIN_HOSTILE;
    const ProcessResult found =
        RunLockstepCommand({"fuzz", "--scripts", "300", "--cache", cache, "--operations", "30"});
    const ProcessResult exhaustive =
        RunLockstepCommand({"fuzz", "--exhaustive", "2", "--cache", cache});
    unsetenv("LOCKSTEP_HOSTILE");
    const std::string call =
        std::string(hostile.deed).substr(0, std::string(hostile.deed).find(':'));
    EXPECT_EQ(found.exit_code, 1) << found.out << found.err;
    EXPECT_THAT(found.out, HasSubstr("FOUND after operation 1: " + std::string(hostile.place)));
    EXPECT_THAT(found.out, HasSubstr("\n" + call));
    EXPECT_EQ(exhaustive.exit_code, 1) << exhaustive.out << exhaustive.err;
    EXPECT_THAT(exhaustive.out,
                HasSubstr("FOUND after operation 1: " + std::string(hostile.place)));
    EXPECT_THAT(exhaustive.out, HasSubstr("\n" + call));
  }
}

// Whatever a long campaign did not reach it has not tested; a short one, as here, need not.
TEST(FuzzTest, ACampaignCountsItsClasses) {
  const ProcessResult result =
      RunLockstepCommand({"fuzz", "--scripts", "200", "--cache", "paged/2"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n  positions: empty "));
  EXPECT_THAT(result.out, HasSubstr("\n  sequences of operations: refused_then_committed "));
}

TEST(FuzzTest, EveryScriptOfASmallScopeIsRunAndCounted) {
  const ProcessResult sound =
      RunLockstepCommand({"fuzz", "--exhaustive", "2", "--cache", "simple", "--cache", "paged/2"});
  EXPECT_EQ(sound.exit_code, 0) << sound.out << sound.err;
  // 2 layers of 3 calls with 1 + 4 + 16 lists of positions and a write; 5 rollbacks; 7 others.
  // Around a block of two there are 1 + 5 + 25 + 1 lists, 1 + 5 + 4 + 1 at the other layer; 6
  // rollbacks.
  EXPECT_THAT(sound.out, HasSubstr(" 140 operations to choose from,     19600 scripts of 2,"));
  EXPECT_THAT(sound.out, HasSubstr("     19740 with shorter ones"));
  EXPECT_THAT(sound.out, HasSubstr(" 144 operations to choose from,     20736 scripts of 2,"));
  EXPECT_THAT(sound.out, HasSubstr("repeat: lockstep fuzz --exhaustive 2 --cache simple --cache"));

  const std::string path = ScriptFile("exhaustive.script", "");
  const ProcessResult found = RunLockstepCommand(
      {"fuzz", "--exhaustive", "2", "--cache", "simple", "--plant", "keep-row", "--out", path});
  EXPECT_EQ(found.exit_code, 1) << found.out << found.err;
  EXPECT_EQ(RunLockstepCommand({"replay", path, "--plant", "keep-row"}).exit_code, 1);
  EXPECT_EQ(RunLockstepCommand({"replay", path}).exit_code, 0);

  const ProcessResult wrong =
      RunLockstepCommand({"fuzz", "--exhaustive", "2", "--target", "caches"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("leave --target and --scripts out"));
}

TEST(FuzzTest, WhatNoTargetHasIsWrongUse) {
  EXPECT_THAT(RunLockstepCommand({"fuzz", "--target", "cahces"}).err, HasSubstr("choose one of"));
  const ProcessResult plant =
      RunLockstepCommand({"fuzz", "--target", "gguf", "--plant", "keep-row", "--scripts", "1"});
  EXPECT_EQ(plant.exit_code, 2);
  EXPECT_THAT(plant.err, HasSubstr("it has one, 'other-exception'"));
  const std::string path = ScriptFile("bad.script", "gguf\n0g\n");
  EXPECT_THAT(RunLockstepCommand({"replay", path}).err, HasSubstr("line 2: '0g'"));
}

TEST(ConformTest, TheCorrectExampleConforms) {
  const ProcessResult result =
      RunLockstepCommand({"conform", LOCKSTEP_EXAMPLE_CONTIGUOUS, "--scripts", "100"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("CONFORMS: 37 clauses hold, 4 unsupported as declared"));
}

std::string ReadText(const std::string& path) {
  const std::vector<std::byte> bytes = ReadWholeFile(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(ConformTest, ThePageAndTheFileSayTheSame) {
  const std::string page = ScriptFile("conform.html", "");
  const std::string file = ScriptFile("conform.json", "");
  const ProcessResult result =
      RunLockstepCommand({"conform", LOCKSTEP_EXAMPLE_TRUSTING, "--scripts", "100", "--level", "1",
                          "--html", page, "--json-file", file});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::string html = ReadText(page);
  const auto object = nlohmann::json::parse(ReadText(file));
  EXPECT_EQ(object["conforms"], false);
  EXPECT_GT(object["clauses"].size(), 30u);
  for (const auto& clause : object["clauses"]) {
    EXPECT_THAT(html, HasSubstr(clause["clause"].get<std::string>()));
  }
  EXPECT_THAT(html, HasSubstr("DOES NOT CONFORM"));
  EXPECT_THAT(html, HasSubstr("lockstep replay --plugin "));
}

// The engine runs on a plug-in as on any cache: the same bits.
TEST(PluginTest, RunAndVerifyTakeAPluginAsACache) {
  const std::string cache = std::string("plugin:") + LOCKSTEP_EXAMPLE_CONTIGUOUS;
  std::vector<std::string> on_plugin = {
      "run", "--synthetic", "tiny-gqa-9x3-q8_0", "--prompt", "a b", "-n", "6", "--json", "--cache"};
  std::vector<std::string> on_simple = on_plugin;
  on_plugin.push_back(cache);
  on_simple.push_back("simple");
  const ProcessResult a = RunLockstepCommand(on_plugin);
  const ProcessResult b = RunLockstepCommand(on_simple);
  ASSERT_EQ(a.exit_code, 0) << a.err;
  ASSERT_EQ(b.exit_code, 0) << b.err;
  const auto plugin = nlohmann::json::parse(a.out);
  EXPECT_EQ(plugin["cache"], "plugin(contiguous)");
  EXPECT_EQ(plugin["digest"], nlohmann::json::parse(b.out)["digest"]);

  const ProcessResult verify = RunLockstepCommand(
      {"verify", "--synthetic", "tiny-gqa-9x3-q8_0", "-n", "4", "--cache", cache, "--json"});
  EXPECT_EQ(verify.exit_code, 0) << verify.out << verify.err;
  EXPECT_EQ(nlohmann::json::parse(verify.out)["cells"][0]["cache"], cache);

  EXPECT_EQ(RunLockstepCommand({"verify", "--cache", "plugin:./no-such.so"}).exit_code, 2);
}

TEST(PluginTest, AScriptMayNameAPlugin) {
  const std::string script = std::string("cache plugin:") + LOCKSTEP_EXAMPLE_TRUSTING +
                             " layers=1 heads=1 dim=1 max=4\ncommit at=0\n";
  const ProcessResult result = RunLockstepCommand({"replay", ScriptFile("plugin.script", script)});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("[C2] subject: done, model: std::logic_error"));
}

TEST(ConformTest, ACounterexampleIsPrintedAndReplays) {
  const ProcessResult result = RunLockstepCommand(
      {"conform", LOCKSTEP_EXAMPLE_TRUSTING, "--scripts", "100", "--level", "1", "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto object = nlohmann::json::parse(result.out);
  EXPECT_EQ(object["conforms"], false);
  int64_t replayed = 0;
  for (const auto& clause : object["clauses"]) {
    if (!clause.contains("script")) continue;
    const std::string path =
        ScriptFile("counterexample.script", clause["script"].get<std::string>());
    const ProcessResult again =
        RunLockstepCommand({"replay", path, "--plugin", LOCKSTEP_EXAMPLE_TRUSTING});
    EXPECT_EQ(again.exit_code, 1) << clause << again.out << again.err;
    ++replayed;
  }
  EXPECT_GE(replayed, 4);
}

TEST(ConformTest, WhatIsNoPluginIsWrongUse) {
  const ProcessResult absent = RunLockstepCommand({"conform", "./no-such.so"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("cannot be loaded"));
  EXPECT_EQ(RunLockstepCommand({"conform"}).exit_code, 2);
}

}  // namespace
}  // namespace lockstep::cli
