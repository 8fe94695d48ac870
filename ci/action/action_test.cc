// The action as GitHub runs it: action.yml's own steps, in a repository that has a plug-in. What
// can be told of workflows by reading them is ci/tidy's to say.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "ci/plan/plan.h"
#include "ci/plan/selection.h"
#include "reports/run_process.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const std::string kRoot = LOCKSTEP_SOURCE_DIR;
const std::string kAction = kRoot + "/ci/action";

// A shell line in `folder`, with `environment` added to ours.
struct Ran {
  int code = -1;
  std::string out;
};
Ran Shell(const std::string& line, const std::string& folder,
          const std::map<std::string, std::string>& environment = {}) {
  const TemporaryFolder temporary;
  const std::string log = temporary.File("log");
  std::vector<std::string> argv = {"env", "-u", "GITHUB_OUTPUT", "-u", "GITHUB_STEP_SUMMARY"};
  for (const auto& [name, value] : environment) argv.push_back(name + "=" + value);
  argv.insert(argv.end(), {"bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line});
  const ProcessEnd end =
      RunProcess({.argv = argv, .folder = folder, .log = log, .seconds_max = 120});
  return {.code = end.kind == ProcessEnd::Kind::kExited ? end.code : -1,
          .out = ReadWholeTextFile(log)};
}

// The text with each ${{ expression }} in place of what it stands for; any other is a failure.
std::string Evaluated(std::string text, const std::map<std::string, std::string>& values) {
  static const std::regex expression(R"(\$\{\{\s*([^}]*?)\s*\}\})");
  std::smatch match;
  while (std::regex_search(text, match, expression)) {
    const auto value = values.find(match[1]);
    EXPECT_NE(value, values.end()) << match[0];
    if (value == values.end()) return text;
    text = match.prefix().str() + value->second + match.suffix().str();
  }
  return text;
}

class ActionTest : public testing::Test {
 protected:
  ActionTest() { std::filesystem::create_directories(folder_ + "/repository"); }

  void Write(const std::string& path, std::string_view text) const {
    WriteWholeTextFile(repository() + "/" + path, text);
  }

  void Git(const std::string& line) const {
    const Ran ran = Shell(line, repository());
    ASSERT_EQ(ran.code, 0) << ran.out;
  }

  // Every step of action.yml with `inputs` in place of their defaults.
  Ran Use(const std::map<std::string, std::string>& inputs) const {
    const YAML::Node action = YAML::LoadFile(kAction + "/action.yml");
    std::map<std::string, std::string> values;
    for (const auto& input : action["inputs"]) {
      values["inputs." + input.first.as<std::string>()] = input.second["default"].as<std::string>();
    }
    for (const auto& [name, value] : inputs) {
      EXPECT_TRUE(values.contains("inputs." + name)) << name;
      values["inputs." + name] = value;
    }
    Ran last;
    for (const YAML::Node& step : action["runs"]["steps"]) {
      EXPECT_EQ(step["shell"].as<std::string>(), "bash");
      std::map<std::string, std::string> environment = {
          {"GITHUB_ACTION_PATH", kAction},
          {"GITHUB_OUTPUT", folder_ + "/output"},
          {"GITHUB_STEP_SUMMARY", folder_ + "/summary"},
          {"RUNNER_TEMP", folder_ + "/temp"}};
      for (const auto& entry : step["env"]) {
        environment[entry.first.as<std::string>()] =
            Evaluated(entry.second.as<std::string>(), values);
      }
      const std::string line = step["run"].as<std::string>();
      // What comes from outside reaches a script by its environment, never as its text; and paths
      // of the context are the host's, which a job in a container does not see.
      EXPECT_EQ(line.find("${{"), line.npos) << line;
      last = Shell(line, repository(), environment);
      if (last.code != 0) break;
    }
    return last;
  }

  std::string repository() const { return folder_ + "/repository"; }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

constexpr std::string_view kPlan = R"(
ignore = ["*.md"]
[[tier]]
name = "smoke"
minutes = 2
select = "diff"
[[plugin]]
name = "cache"
build = """cc -shared -fPIC -I "$LOCKSTEP_SOURCE" cache.c -o {out}/cache.so"""
library = "{out}/cache.so"
level = 1
minutes = 2
paths = ["cache.c"]
)";

TEST_F(ActionTest, AFaultyPlugInIsRedAndTheMendedOneGreen) {
  setenv("LOCKSTEP_SOURCE", kRoot.c_str(), 1);
  Write("lockstep.toml", kPlan);
  Write("README.md", "A cache.\n");
  Write("cache.c", ReadWholeTextFile(kRoot + "/caches/examples/contiguous.c"));
  Git("git init -q -b main && git config user.name T && git config user.email t@example.org && "
      "git add . && git commit -qm sound && git checkout -qb change");
  const std::map<std::string, std::string> inputs = {{"lockstep", LOCKSTEP_BINARY},
                                                     {"base", "main"}};

  Write("cache.c", ReadWholeTextFile(kRoot + "/caches/examples/trusting.c"));
  const Ran red = Use(inputs);
  EXPECT_EQ(red.code, 1) << red.out;
  EXPECT_THAT(red.out, HasSubstr("FAILED: 1 failed of tier smoke"));
  EXPECT_THAT(red.out, HasSubstr("::error title=lockstep gate%3A conform-cache::"));
  const std::string log = folder_ + "/temp/lockstep-gate/parts/conform-cache/log";
  EXPECT_THAT(ReadWholeTextFile(log), HasSubstr("DOES NOT CONFORM"));
  EXPECT_THAT(ReadWholeTextFile(folder_ + "/summary"), HasSubstr("**FAILED: "));
  EXPECT_THAT(ReadWholeTextFile(folder_ + "/output"), HasSubstr("report="));

  // One that does not build, and one that builds nothing, conform as little.
  Write("cache.c", "no C\n");
  EXPECT_EQ(Use(inputs).code, 1);
  Write("lockstep.toml", std::regex_replace(std::string(kPlan), std::regex("build = .*"), ""));
  const Ran missing = Use(inputs);
  EXPECT_EQ(missing.code, 1) << missing.out;
  EXPECT_THAT(ReadWholeTextFile(log), HasSubstr("cannot be loaded"));

  Write("lockstep.toml", kPlan);
  Write("cache.c", ReadWholeTextFile(kRoot + "/caches/examples/contiguous.c") + "/* mended */\n");
  const Ran green = Use(inputs);
  EXPECT_EQ(green.code, 0) << green.out;
  EXPECT_THAT(green.out, HasSubstr("HOLDS: 1 holds of tier smoke"));

  // Only words changed: nothing is affected, and it says so.
  Git("git checkout -q cache.c && echo more >> README.md");
  const Ran words = Use(inputs);
  EXPECT_EQ(words.code, 0) << words.out;
  EXPECT_THAT(words.out, HasSubstr("1 unaffected of tier smoke"));
}

TEST_F(ActionTest, WithoutABaseEveryPartRunsAndAWrongPlanIsWrongUse) {
  setenv("LOCKSTEP_SOURCE", kRoot.c_str(), 1);
  Write("lockstep.toml", kPlan);
  Write("cache.c", ReadWholeTextFile(kRoot + "/caches/examples/contiguous.c"));
  const Ran pushed = Use({{"lockstep", LOCKSTEP_BINARY}, {"base", "origin/"}, {"seed", "1"}});
  EXPECT_EQ(pushed.code, 0) << pushed.out;
  EXPECT_THAT(pushed.out, HasSubstr("every part, for want of --base"));
  const Ran unknown = Use({{"lockstep", LOCKSTEP_BINARY}, {"tier", "smok"}});
  EXPECT_EQ(unknown.code, 2) << unknown.out;
  EXPECT_THAT(unknown.out, HasSubstr("there is no tier 'smok'"));
  const Ran hostile = Use({{"lockstep", LOCKSTEP_BINARY}, {"seed", "1; touch owned"}});
  EXPECT_EQ(hostile.code, 2) << hostile.out;
  EXPECT_FALSE(std::filesystem::exists(repository() + "/owned"));
}

// The user's own model file: sound, and with one that is damaged.
TEST_F(ActionTest, AModelOfTheUsersIsProved) {
  Write("lockstep.toml",
        "[[tier]]\nname = \"smoke\"\nminutes = 2\nselect = \"diff\"\n[[part]]\n"
        "name = \"model\"\nrun = \"lockstep verify --model model.gguf --cache paged/4\"\n"
        "proof = \"HOLDS: \"\ntiers = [\"smoke\"]\nminutes = 2\n");
  const Ran made = Shell(std::string(LOCKSTEP_BINARY) + " synth --preset tiny-gqa-9x3-q8_0 " +
                             "--out model.gguf --seed 1",
                         repository());
  ASSERT_EQ(made.code, 0) << made.out;
  const Ran green = Use({{"lockstep", LOCKSTEP_BINARY}, {"seed", "1"}});
  EXPECT_EQ(green.code, 0) << green.out;
  EXPECT_THAT(green.out, HasSubstr("HOLDS: 1 holds of tier smoke"));
  std::filesystem::resize_file(repository() + "/model.gguf", 5000);
  EXPECT_EQ(Use({{"lockstep", LOCKSTEP_BINARY}, {"seed", "1"}}).code, 1);
}

TEST(AllGreen, IsGreenOnlyWhenEveryJobSucceeded) {
  const auto code = [](const std::string& needs) {
    return Shell(kAction + "/all-green", ".", {{"NEEDS", needs}}).code;
  };
  // As toJSON prints it.
  EXPECT_EQ(code("{\n  \"a\": {\n    \"result\": \"success\",\n    \"outputs\": {}\n  }\n}"), 0);
  EXPECT_EQ(code(R"({"a": {"result": "success"}, "b": {"result": "skipped"}})"), 1);
  EXPECT_EQ(code(R"({"a": {"result": "failure"}, "b": {"result": "success"}})"), 1);
  EXPECT_EQ(code(R"({"a": {"result": "cancelled"}})"), 1);
  EXPECT_EQ(code("{}"), 1);
}

// ci/bench-pr in a repository with a change, with a program in place of lockstep that writes down
// its arguments and ends as it is told.
class BenchOfAPullRequestTest : public ActionTest {
 protected:
  BenchOfAPullRequestTest() {
    std::filesystem::create_directories(repository() + "/ci");
    std::filesystem::copy(kRoot + "/ci/bench-pr", repository() + "/ci/bench-pr");
    Write("lockstep",
          "#!/bin/sh\necho \"$@\" > arguments\n"
          "[ \"$END\" = 2 ] || echo '**verdict**' > \"$RUNNER_TEMP/lockstep-bench/comment.md\"\n"
          "exit \"$END\"\n");
    Git("chmod +x lockstep && git init -q -b main && git config user.name T && "
        "git config user.email t@example.org && git add . && git commit -qm base && "
        "git checkout -qb change && git commit -qm change --allow-empty && git checkout -q main && "
        "git commit -qm later --allow-empty && git checkout -q change");
  }

  Ran Compare(int end, const std::string& arguments = "main") const {
    return Shell("ci/bench-pr " + arguments, repository(),
                 {{"LOCKSTEP", "./lockstep"},
                  {"END", std::to_string(end)},
                  {"RUNNER_TEMP", folder_},
                  {"GITHUB_STEP_SUMMARY", folder_ + "/summary"}});
  }
};

TEST_F(BenchOfAPullRequestTest, TheCommitWhereItLeftItsBaseIsComparedWithTheTree) {
  const Ran ran = Compare(0, "main --filter kernel/");
  EXPECT_EQ(ran.code, 0) << ran.out;
  const Ran merge_base = Shell("git rev-parse main^", repository());
  const std::string commit = merge_base.out.substr(0, 40);
  EXPECT_THAT(ReadWholeTextFile(repository() + "/arguments"),
              testing::AllOf(HasSubstr("bench compare --base " + commit + " "),
                             HasSubstr(" --filter kernel/")));
  EXPECT_EQ(ReadWholeTextFile(folder_ + "/summary"), "**verdict**\n");
}

// What a branch drops is listed where the reason is, and goes with the branch.
TEST_F(BenchOfAPullRequestTest, TrailersOfItsCommitsSayWhatIsGone) {
  Git("git commit -q --allow-empty -m 'drop a' -m 'Bench-gone: a/b c\nBench-gone: d#bytes'");
  EXPECT_EQ(Compare(0, "main --rounds 2").code, 0);
  EXPECT_THAT(ReadWholeTextFile(repository() + "/arguments"),
              HasSubstr(" --gone a/b c --gone d#bytes --rounds 2\n"));
  // Once it is in the base, it is said no more.
  Git("git checkout -q main && git merge -q --no-edit change && git checkout -q change && "
      "git merge -q main && git commit -q --allow-empty -m next");
  EXPECT_EQ(Compare(0).code, 0);
  EXPECT_THAT(ReadWholeTextFile(repository() + "/arguments"), testing::Not(HasSubstr("--gone")));
}

TEST_F(BenchOfAPullRequestTest, FailsForWhatIsSlowerAndNotForWhatIsOpen) {
  EXPECT_EQ(Compare(1).code, 1);
  const Ran open = Compare(3);
  EXPECT_EQ(open.code, 0) << open.out;
  EXPECT_THAT(open.out, HasSubstr("::warning title=lockstep bench::"));
  // Nothing compared is never green, whatever an earlier run left.
  EXPECT_EQ(Compare(2).code, 2);
  EXPECT_EQ(Compare(0, "no-such-branch").code, 128);
}

// GitHub ends a job at its limit, and what it had found is lost: the parts of each shard of the
// deep tier, and a build, have room in it. A job may take six hours.
TEST(Workflows, EveryShardOfTheDeepTierHasTime) {
  constexpr int32_t kBuildMinutes = 45, kJobMinutesMost = 360;
  const YAML::Node job = YAML::LoadFile(kRoot + "/.github/workflows/deep.yml")["jobs"]["deep"];
  const auto limit = job["timeout-minutes"].as<int32_t>();
  EXPECT_LE(limit, kJobMinutesMost);
  const Plan plan = ParsePlan(ReadWholeTextFile(kRoot + "/ci/lockstep.toml"), "ci/lockstep.toml");
  const YAML::Node shards = job["strategy"]["matrix"]["shard"];
  ASSERT_GT(shards.size(), 1u);
  size_t parts_run = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    EXPECT_EQ(shards[i].as<std::string>(), fmt::format("{}/{}", i + 1, shards.size()));
    std::vector<Selected> parts = SelectParts(plan, "deep", false, {});
    KeepPartsOfShard(&parts, static_cast<int32_t>(i) + 1, static_cast<int32_t>(shards.size()));
    int32_t minutes = kBuildMinutes;
    for (const Selected& one : parts) minutes += one.part->minutes;
    EXPECT_LE(minutes, limit) << shards[i];
    parts_run += parts.size();
  }
  EXPECT_EQ(parts_run, SelectParts(plan, "deep", false, {}).size());
}

// The job for GitLab: the base branch is fetched before it is compared with, and the script is
// there.
TEST(Manifests, TheJobForGitLabFetchesWhatItNeeds) {
  const YAML::Node job = YAML::LoadFile(kRoot + "/ci/gitlab.yml")["lockstep"];
  std::string before;
  for (const YAML::Node& line : job["before_script"]) before += line.as<std::string>() + "\n";
  EXPECT_LT(before.find("install git"), before.find("git config")) << "a bare image has no git";
  EXPECT_THAT(before, HasSubstr("git fetch --quiet origin \"$CI_DEFAULT_BRANCH\""));
  const auto line = job["script"][0].as<std::string>();
  EXPECT_THAT(line, HasSubstr("--base \"origin/$CI_DEFAULT_BRANCH\""));
  const std::string script = line.substr(0, line.find(' '));
  constexpr std::string_view kClone = "/opt/lockstep";
  ASSERT_TRUE(script.starts_with(kClone)) << script;
  EXPECT_EQ(access((kRoot + script.substr(kClone.size())).c_str(), X_OK), 0) << script;
  EXPECT_THAT(before, HasSubstr(kClone));
  EXPECT_THAT(line, HasSubstr("--junit " + job["artifacts"]["reports"]["junit"].as<std::string>()));
}

// What other services read, as far as it can be judged without them.
TEST(Manifests, AreSoundAndNameWhatIsThere) {
  const YAML::Node job = YAML::LoadFile(kRoot + "/ci/scale/kubernetes.yaml");
  EXPECT_EQ(job["spec"]["completionMode"].as<std::string>(), "Indexed");
  const YAML::Node container = job["spec"]["template"]["spec"]["containers"][0];
  EXPECT_TRUE(std::filesystem::exists(kRoot + "/" + container["command"][0].as<std::string>()));
  EXPECT_EQ(container["env"][0]["name"].as<std::string>(), "SHARDS");
  EXPECT_EQ(container["env"][0]["value"].as<std::string>(),
            job["spec"]["completions"].as<std::string>());
  EXPECT_EQ(YAML::LoadFile(kRoot + "/.clusterfuzzlite/project.yaml")["language"].as<std::string>(),
            "c++");
}

}  // namespace
}  // namespace lockstep
