// `lockstep verify`, as a user calls it: exit codes, the table, the JSON, the place of a planted
// fault.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ci/lockstep/test_process.h"
#include "engine/test_models.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

std::vector<std::string> TinyVerify(std::initializer_list<std::string> more) {
  std::vector<std::string> args = {
      "verify", "--synthetic", "tiny-gqa-9x3-q8_0", "--prompt", "Once upon", "-n", "3"};
  args.insert(args.end(), more);
  return args;
}

TEST(VerifyTest, EveryCacheHolds) {
  const ProcessResult text = RunLockstepCommand(TinyVerify({}));
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  EXPECT_TRUE(text.out.starts_with("lockstep verify: synthetic tiny-gqa-9x3-q8_0, seed 1"))
      << text.out;
  for (const std::string_view part : {"simple", "paged/16", "direct", "legacy", "HOLDS"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
  }
  const ProcessResult structured = RunLockstepCommand(TinyVerify({"--json"}));
  EXPECT_EQ(structured.exit_code, 0) << structured.err;
  const json object = json::parse(structured.out);
  EXPECT_EQ(object["outcome"], "holds");
  ASSERT_FALSE(object["cells"].empty());
  EXPECT_EQ(object["cells"][0]["cache"], "simple");
  EXPECT_EQ(object["cells"][0]["write_path"], "direct");
  EXPECT_EQ(object["cells"][0]["counts"]["updates"], 0);
  EXPECT_GT(object["cells"][0]["counts"]["reserves_granted"], 0);
}

TEST(VerifyTest, OnlyTheCachesAskedFor) {
  const json object = json::parse(
      RunLockstepCommand(TinyVerify({"--cache", "paged/4", "--cache", "simple", "--json"})).out);
  EXPECT_EQ(object["cells"][0]["cache"], "paged/4");
  for (const json& cell : object["cells"]) {
    const auto name = cell["cache"].get<std::string>();
    EXPECT_TRUE(name == "simple" || name == "paged/4" || name.starts_with("model/")) << name;
  }
}

TEST(VerifyTest, PlantedFlipIsFoundAtItsPlace) {
  const std::vector<std::string> args = TinyVerify(
      {"--cache", "simple", "--plant", "flip-k:layer=1,position=3,element=5,step=2", "--json"});
  const ProcessResult structured = RunLockstepCommand(args);
  EXPECT_EQ(structured.exit_code, 1) << structured.err;
  const json object = json::parse(structured.out);
  EXPECT_EQ(object["outcome"], "differs");
  const json& difference = object["cells"][0]["difference"];
  EXPECT_EQ(difference["kind"], "between steps");
  EXPECT_EQ(difference["step"], 2);
  EXPECT_EQ(difference["layer"], 1);
  EXPECT_EQ(difference["place"], "K row");
  EXPECT_EQ(difference["position"], 3);
  EXPECT_EQ(difference["element"], 5);
  EXPECT_NE(difference["subject"]["hex"], difference["oracle"]["hex"]);
}

TEST(VerifyTest, SkippedCommitIsFoundAndTheRunIsRepeatable) {
  const ProcessResult text =
      RunLockstepCommand(TinyVerify({"--cache", "simple", "--plant", "skip-commit:layer=2"}));
  EXPECT_EQ(text.exit_code, 1) << text.err;
  EXPECT_NE(text.out.find("layer 2"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("DIFFERS"), std::string::npos) << text.out;
  const std::string repeat =
      "lockstep verify --synthetic tiny-gqa-9x3-q8_0 --seed 1 --prompt 'Once upon' -n 3 "
      "--cache simple --plant skip-commit:layer=2";
  EXPECT_NE(text.out.find(repeat), std::string::npos) << text.out;
}

TEST(VerifyTest, NothingOnTheDirectPathIsInconclusive) {
  const ProcessResult text = RunLockstepCommand(TinyVerify({"--cache", "quantized/q8_0+q8_0/w0"}));
  EXPECT_EQ(text.exit_code, 3) << text.out << text.err;
  EXPECT_NE(text.out.find("INCONCLUSIVE"), std::string::npos) << text.out;
}

TEST(VerifyTest, RealModelHoldsAndItsPlantIsFound) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "stories260K-q8_0.gguf");
  const std::vector<std::string> args = {"verify",           "--model", path, "--prompt",
                                         "Once upon a time", "-n",      "4"};
  const ProcessResult holds = RunLockstepCommand(args);
  EXPECT_EQ(holds.exit_code, 0) << holds.out << holds.err;
  std::vector<std::string> planted = args;
  planted.insert(planted.end(), {"--plant", "flip-k:layer=2,position=3,element=5,step=2"});
  const ProcessResult differs = RunLockstepCommand(planted);
  EXPECT_EQ(differs.exit_code, 1) << differs.err;
  EXPECT_NE(differs.out.find("step 2, layer 2, K row, position 3"), std::string::npos)
      << differs.out;
}

TEST(VerifyTest, WithoutAModelTwoAreVerified) {
  const std::vector<std::string> args = {"verify", "-n", "1", "--cache", "simple"};
  const ProcessResult text = RunLockstepCommand(args);
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  std::vector<std::string> structured = args;
  structured.push_back("--json");
  const json object = json::parse(RunLockstepCommand(structured).out);
  EXPECT_EQ(object["outcome"], "holds");
  ASSERT_EQ(object["runs"].size(), 2u);
  ASSERT_EQ(object["cells"].size() % 2, 0u);
  EXPECT_EQ(object["cells"].front()["model"], "the story model in q8_0");
  EXPECT_EQ(object["cells"].back()["model"], "synthetic smollm-135m, seed 1");
  EXPECT_EQ(object["runs"][0]["model"], "the story model in q8_0");
  EXPECT_EQ(object["runs"][1]["model"], "synthetic smollm-135m, seed 1");
  for (const json& run : object["runs"]) {
    EXPECT_EQ(run["outcome"], "holds");
    EXPECT_NE(text.out.find("lockstep verify: " + run["model"].get<std::string>()),
              std::string::npos)
        << text.out;
    const auto command = run["command"].get<std::string>();
    EXPECT_NE(command.find(" --story q8_0 ") != std::string::npos,
              command.find(" --synthetic smollm-135m ") != std::string::npos)
        << command;
  }
}

// A verdict over two models is that of the worse one.
TEST(VerifyTest, NoProofOnTwoModelsIsInconclusive) {
  const ProcessResult result =
      RunLockstepCommand({"verify", "-n", "1", "--cache", "quantized/q8_0+q8_0/w0", "--json"});
  EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
  EXPECT_EQ(json::parse(result.out)["outcome"], "inconclusive");
}

TEST(VerifyTest, TheStoryModelsPlantIsFound) {
  for (const char* weights : {"f32", "q8_0"}) {
    const ProcessResult differs =
        RunLockstepCommand({"verify", "--story", weights, "-n", "4", "--cache", "simple", "--plant",
                            "flip-k:layer=2,position=3,element=5,step=2"});
    EXPECT_EQ(differs.exit_code, 1) << differs.err;
    EXPECT_NE(differs.out.find("step 2, layer 2, K row, position 3"), std::string::npos)
        << differs.out;
  }
}

TEST(VerifyTest, HelpNamesCachesAndPlants) {
  const ProcessResult help = RunLockstepCommand({"verify", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const std::string_view part : {"paged/16", "flip-k:layer=", "skip-commit", "Exit codes"}) {
    EXPECT_NE(help.out.find(part), std::string::npos) << help.out << "lacks: " << part;
  }
}

}  // namespace
}  // namespace lockstep::cli
