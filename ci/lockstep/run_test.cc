// `lockstep run` and `lockstep doctor`, as a user calls them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ci/lockstep/test_process.h"
#include "engine/test_models.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

std::vector<std::string> TinyRun(std::initializer_list<std::string> more) {
  std::vector<std::string> args = {
      "run", "--synthetic", "tiny-gqa-9x3-q8_0", "--prompt", "Once upon a time", "-n", "12"};
  args.insert(args.end(), more);
  return args;
}

json RunJson(const std::vector<std::string>& args) {
  const ProcessResult result = RunLockstepCommand(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out);
}

TEST(RunTest, TextGoesToStandardOutputAndTheRestToStandardError) {
  const ProcessResult text = RunLockstepCommand(TinyRun({}));
  ASSERT_EQ(text.exit_code, 0) << text.err;
  const json object = RunJson(TinyRun({"--json"}));
  EXPECT_NE(text.err.find(object["digest"].get<std::string>()), std::string::npos) << text.err;
  EXPECT_NE(text.err.find("12 new"), std::string::npos) << text.err;
  EXPECT_EQ(text.out.find(object["digest"].get<std::string>()), std::string::npos);
  EXPECT_EQ(object["tokens"].size(), 12u);
  EXPECT_GE(object["timings"]["prefill_ms"], 0.0);
  EXPECT_GE(object["timings"]["tokens_per_second"], 0.0);
}

TEST(RunTest, EveryCacheAndSeedIsRepeatable) {
  const json simple = RunJson(TinyRun({"--json"}));
  const json paged = RunJson(TinyRun({"--json", "--cache", "paged/16"}));
  EXPECT_EQ(paged["cache"], "paged/16");
  EXPECT_EQ(paged["digest"], simple["digest"]);
  EXPECT_EQ(paged["tokens"], simple["tokens"]);
  const json other_seed = RunJson(TinyRun({"--json", "--seed", "2"}));
  EXPECT_NE(other_seed["digest"], simple["digest"]);
  EXPECT_EQ(RunJson(TinyRun({"--json", "--seed", "1"}))["digest"], simple["digest"]);
}

TEST(RunTest, RealModelGivesTheReferenceText) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "stories260K-f32.gguf");
  const ProcessResult text =
      RunLockstepCommand({"run", "--model", path, "--prompt", "Once upon a time", "-n", "64"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with(", there was a little girl named Lily. She loved to play"))
      << text.out;
  const json object =
      RunJson({"run", "--model", path, "--prompt", "Once upon a time", "-n", "64", "--json"});
  EXPECT_EQ(object["prompt_tokens"], json({1, 403, 407, 261, 378}));
  EXPECT_EQ(object["tokens"].size(), 64u);
  EXPECT_EQ(object["text"].get<std::string>() + "\n", text.out);
}

TEST(DoctorTest, ThisMachineIsHealthy) {
  const ProcessResult text = RunLockstepCommand({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  EXPECT_NE(text.out.find("scalar"), std::string::npos) << text.out;
  const ProcessResult structured = RunLockstepCommand({"doctor", "--json"});
  EXPECT_EQ(json::parse(structured.out)["healthy"], true);
}

TEST(DoctorTest, KernelsThatDoNotExistAreAProblem) {
  const ProcessResult result = RunLockstepCommand({"doctor"}, {"LOCKSTEP_ISA=mmx"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_NE(result.out.find("PROBLEM"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace lockstep::cli
