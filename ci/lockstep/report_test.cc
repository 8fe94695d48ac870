// `lockstep report` over what the other commands really write: a format that moves on without its
// reader is seen here.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "caches/test_paths.h"
#include "ci/lockstep/test_process.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ReportCommandTest : public testing::Test {
 protected:
  std::string File(const std::string& name) const { return folder_.File(name); }

  // Standard output of a command, in a file.
  std::string Written(const std::string& name, const std::vector<std::string>& args) const {
    WriteWholeTextFile(File(name), RunLockstepCommand(args).out);
    return File(name);
  }

  // The only part of a report of this file, and the report's exit code.
  std::pair<json, int> Part(const std::string& path) const {
    const ProcessResult result = RunLockstepCommand({"report", path, "--json"});
    EXPECT_EQ(result.err, "");
    const json report = json::parse(result.out);
    EXPECT_EQ(report["parts"].size(), 1u);
    return {report["parts"][0], result.exit_code};
  }

  const TemporaryFolder folder_;
};

TEST_F(ReportCommandTest, ReadsWhatVerifyAndItsMatrixWrite) {
  const std::vector<std::string> verify = {"verify",  "--synthetic", "tiny-mha-4x4-f32", "--json",
                                           "--cache", "simple",      "--cache",          "paged/4"};
  const auto [holds, holds_code] = Part(Written("v.json", verify));
  EXPECT_EQ(holds_code, 0) << holds;
  EXPECT_GE(holds["rows"].size(), 4u);
  std::vector<std::string> planted = verify;
  planted.insert(planted.end(), {"--plant", "flip-k:layer=1,position=3,element=5,step=1"});
  const auto [differs, differs_code] = Part(Written("p.json", planted));
  EXPECT_EQ(differs_code, 1);
  EXPECT_THAT(differs["complaints"][0].get<std::string>(), HasSubstr("position 3"));

  RunLockstepCommand({"verify", "--matrix", "--synthetic", "tiny-mha-4x4-f32", "--axis", "fork",
                      "--cache", "simple", "--json-file", File("m.json")});
  const auto [matrix, matrix_code] = Part(File("m.json"));
  EXPECT_EQ(matrix_code, 0) << matrix;
  EXPECT_EQ(matrix["rows"].size(), 2u);
}

TEST_F(ReportCommandTest, ReadsWhatAMatrixOfEveryTypeWrites) {
  const std::vector<std::string> types = {
      "verify", "--matrix",   "--every-type", "--synthetic", "tiny-qwen3-5x1-f16",
      "--axis", "write-path", "--weights",    "q8_0",        "--json"};
  const auto [holds, holds_code] = Part(Written("t.json", types));
  EXPECT_EQ(holds_code, 0) << holds.dump();
  ASSERT_EQ(holds["rows"].size(), 1u);
  EXPECT_EQ(holds["rows"][0][2].get<std::string>(), "16");
  std::vector<std::string> planted = types;
  planted.insert(planted.end(), {"--control", "nudged-commit"});
  const auto [differs, differs_code] = Part(Written("d.json", planted));
  EXPECT_EQ(differs_code, 1);
  EXPECT_THAT(differs["complaints"][0].get<std::string>(),
              HasSubstr("tiny-qwen3-5x1-f16 in q8_0: DIFFERS: write-path direct"));
}

TEST_F(ReportCommandTest, ReadsWhatGateConformAndExplainWrite) {
  WriteWholeTextFile(
      File("plan.toml"),
      "[[tier]]\nname = \"t\"\nminutes = 1\nselect = \"all\"\n[[part]]\nname = \"a\"\n"
      "run = \"echo no\"\nproof = \"yes\"\ntiers = [\"t\"]\nminutes = 1\n");
  RunLockstepCommand({"gate", "--config", File("plan.toml"), "--tier", "t", "--out", File("out"),
                      "--json-file", File("g.json")});
  const auto [gate, gate_code] = Part(File("g.json"));
  EXPECT_EQ(gate_code, 3) << gate;  // it did not print its proof
  EXPECT_THAT(gate["complaints"][0].get<std::string>(), HasSubstr("a: "));

  for (const auto& [library, code] :
       {std::pair(LOCKSTEP_EXAMPLE_CONTIGUOUS, 0), std::pair(LOCKSTEP_EXAMPLE_TRUSTING, 1)}) {
    RunLockstepCommand(
        {"conform", library, "--level", "1", "--scripts", "200", "--json-file", File("c.json")});
    const auto [conform, conform_code] = Part(File("c.json"));
    EXPECT_EQ(conform_code, code) << conform;
    EXPECT_EQ(conform["complaints"].empty(), code == 0);
  }

  const auto [explain, explain_code] = Part(
      Written("e.json", {"golden", "explain", "arch-gqa-q8_0", "--plant", "swap-kv:layer=1,step=1",
                         "--json", "--folder", SourceDir() + "/golden/cases"}));
  EXPECT_EQ(explain_code, 1);
  EXPECT_EQ(explain["rows"][0][4], "k/v swapped");
}

TEST_F(ReportCommandTest, ReadsScriptsComparisonsAndHistories) {
  const std::string script = File("f.script");
  RunLockstepCommand({"fuzz", "--plant", "stale-row:layer=0", "--scripts", "500", "--out", script});
  EXPECT_EQ(Part(script).second, 0);  // the real cache holds

  const auto google = [](double seconds) {
    json out = {{"context", json::object()}, {"benchmarks", json::array()}};
    for (int i = 0; i < 20; ++i) {
      out["benchmarks"].push_back({{"name", "b"},
                                   {"run_name", "b"},
                                   {"run_type", "iteration"},
                                   {"repetitions", 20},
                                   {"repetition_index", i},
                                   {"threads", 1},
                                   {"iterations", 9},
                                   {"real_time", seconds + 0.001 * (i % 7)},
                                   {"cpu_time", seconds},
                                   {"time_unit", "s"}});
    }
    return out.dump();
  };
  WriteWholeTextFile(File("a.json"), google(1));
  WriteWholeTextFile(File("b.json"), google(2));
  RunLockstepCommand(
      {"bench", "compare", File("a.json"), File("b.json"), "--json-file", File("cmp.json")});
  const auto [bench, bench_code] = Part(File("cmp.json"));
  EXPECT_EQ(bench_code, 1) << bench;
  EXPECT_THAT(bench["complaints"][0].get<std::string>(), HasSubstr("b: slower by"));

  RunLockstepCommand({"bench", "history", File("h.sqlite"), "--add", File("a.json")});
  EXPECT_EQ(Part(File("h.sqlite")).second, 0);
}

// Somebody's cache may end the process that runs it: not the report.
TEST_F(ReportCommandTest, ACrashingScriptIsAPart) {
  const std::string script = File("crash.script");
  WriteWholeTextFile(script, fmt::format("cache plugin:{} layers=1 heads=1 dim=2 max=4\n"
                                         "update at=0 rows=1\n",
                                         LOCKSTEP_PLUGIN_HOSTILE));
  setenv("LOCKSTEP_HOSTILE", "update:fault", 1);
  const auto [part, code] = Part(script);
  unsetenv("LOCKSTEP_HOSTILE");
  EXPECT_EQ(code, 1);
  EXPECT_THAT(part["complaints"][0].get<std::string>(), HasSubstr("SIGSEGV"));
  EXPECT_EQ(Part(script).second, 0);
}

TEST_F(ReportCommandTest, WritesEveryFormAndRefusesWhatItCannotRead) {
  const std::string good = Written(
      "v.json", {"verify", "--synthetic", "tiny-mha-4x4-f32", "--json", "--cache", "simple"});
  const ProcessResult result = RunLockstepCommand(
      {"report", good, "--title", "T", "--html", File("r.html"), "--markdown", File("r.md"),
       "--junit", File("r.xml"), "--json-file", File("r.json"), "--github"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("HOLDS: 1 parts\n"));
  EXPECT_THAT(result.out, HasSubstr("::notice title=T::HOLDS"));
  EXPECT_THAT(ReadWholeTextFile(File("r.html")), HasSubstr("Caches and write paths"));
  EXPECT_THAT(ReadWholeTextFile(File("r.md")), HasSubstr("**HOLDS: 1 parts**"));
  EXPECT_THAT(ReadWholeTextFile(File("r.xml")), HasSubstr("tests=\"1\" failures=\"0\""));
  EXPECT_EQ(json::parse(ReadWholeTextFile(File("r.json")))["format"], "lockstep-report");
  EXPECT_EQ(json::parse(RunLockstepCommand({"report", "--schema"}).out)["title"],
            "lockstep report");

  EXPECT_EQ(RunLockstepCommand({"report"}).exit_code, 2);
  const ProcessResult wrong = RunLockstepCommand({"report", good, File("r.md")});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("r.md: is nothing that a report is made of"));
}

}  // namespace
}  // namespace lockstep::cli
