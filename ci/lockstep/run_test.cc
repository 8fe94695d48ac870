// `lockstep run` and `lockstep doctor`, as a user calls them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "caches/file_io.h"
#include "caches/temporary_folder.h"
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

TEST(RunTest, TokensAloneAreTheSameOnHostAndDevice) {
  const json whole = RunJson(TinyRun({"--json", "--cache", "quantized/f16+f16/w0"}));
  const json host = RunJson(TinyRun({"--json", "--cache", "quantized/f16+f16/w0", "--no-digest"}));
  const json device = RunJson(TinyRun({"--json", "--device", "host-executor", "--no-digest"}));
  EXPECT_EQ(host["tokens"], whole["tokens"]);
  EXPECT_EQ(device["tokens"], whole["tokens"]);
  EXPECT_EQ(device["device"]["graph_steps"], 11);
  for (const json& object : {host, device}) EXPECT_FALSE(object.contains("digest"));
  const ProcessResult text = RunLockstepCommand(TinyRun({"--no-digest"}));
  EXPECT_EQ(text.err.find("logits digest"), std::string::npos) << text.err;
}

TEST(RunTest, ThreadsChangeNoBitAndAreNamed) {
  const json one = RunJson(TinyRun({"--json", "--threads", "1"}));
  EXPECT_EQ(one["threads"], 1);
  for (const char* threads : {"2", "5"}) {
    EXPECT_EQ(RunJson(TinyRun({"--json", "--threads", threads}))["digest"], one["digest"]);
  }
  const ProcessResult text = RunLockstepCommand(TinyRun({"--threads", "3"}));
  EXPECT_NE(text.err.find("threads 3"), std::string::npos) << text.err;
  EXPECT_EQ(RunLockstepCommand(TinyRun({"--threads", "0"})).exit_code, 2);
}

TEST(RunTest, AShiftedContextGoesOn) {
  const std::vector<std::string> flags = {"--json", "-n", "50", "--context", "24"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> args = {"run", "--synthetic", "tiny-gqa-9x3-q8_0", "--prompt", "Once"};
    args.insert(args.end(), flags.begin(), flags.end());
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const json shifted = RunJson(with({"--context-shift", "2"}));
  EXPECT_EQ(shifted["tokens"].size(), 50u);
  EXPECT_GT(shifted["shifts"]["count"], 1);
  EXPECT_EQ(shifted["shifts"]["deleted"].get<int>(), shifted["shifts"]["count"].get<int>() * 11);
  for (const char* cache : {"paged/4", "paged/16"}) {
    EXPECT_EQ(RunJson(with({"--context-shift", "2", "--cache", cache}))["digest"],
              shifted["digest"]);
  }
  const ProcessResult refused = RunLockstepCommand(with({}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("the cache has 24"), std::string::npos) << refused.err;
  EXPECT_EQ(RunLockstepCommand(with({"--context-shift", "23"})).exit_code, 2);
}

TEST(RunTest, WatchShowsTheRowsOfEachDecodeStep) {
  const json plain = RunJson(TinyRun({"--json"}));
  EXPECT_FALSE(plain.contains("watch"));
  const json watched = RunJson(TinyRun({"--json", "--watch-full", "4"}));
  EXPECT_EQ(watched["digest"], plain["digest"]);
  ASSERT_EQ(watched["watch"].size(), 11u);  // the prefill gives the first of 12 tokens
  ASSERT_EQ(watched["watch_full"].size(), 2u);
  const auto first = plain["prompt_tokens"].size();
  for (size_t i = 0; i < 11; ++i) EXPECT_EQ(watched["watch"][i]["position"], first + i);
  EXPECT_EQ(watched["watch_full"][1]["position"], first + 7);
  // Written in place or copied (a block of one position grants no prefill), by any kernels.
  for (const auto& more : {std::vector<std::string>{"--cache", "paged/1"},
                           {"--isa", "scalar"},
                           {"--threads", "3", "--cache", "paged/16"}}) {
    auto args = TinyRun({"--json", "--watch-full", "4"});
    args.insert(args.end(), more.begin(), more.end());
    const json other = RunJson(args);
    EXPECT_EQ(other["watch"], watched["watch"]) << more[1];
    EXPECT_EQ(other["watch_full"], watched["watch_full"]) << more[1];
  }
  const ProcessResult text = RunLockstepCommand(TinyRun({"--watch"}));
  EXPECT_NE(text.err.find(watched["watch"][10]["digest"].get<std::string>()), std::string::npos)
      << text.err;
  EXPECT_EQ(text.err.find("watch cache"), std::string::npos) << text.err;
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

TEST(RunTest, WithoutAModelItTellsAStory) {
  const ProcessResult text = RunLockstepCommand({"run"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with(" there was a ")) << text.out;
  EXPECT_TRUE(text.out.ends_with(".\n")) << text.out;
  EXPECT_TRUE(text.err.starts_with("no model is given: the story model in q8_0")) << text.err;
  for (const std::string_view part : {"ended by the model", "lockstep run --story q8_0 --prompt"}) {
    EXPECT_NE(text.err.find(part), std::string::npos) << text.err << "lacks: " << part;
  }
  // The same by name, in as many tokens as are asked for, and from another beginning.
  const json named =
      RunJson({"run", "--story", "q8_0", "--prompt", "Once upon a time", "-n", "240", "--json"});
  EXPECT_EQ(named["text"].get<std::string>() + "\n", text.out);
  EXPECT_EQ(named["stop"], "eos");
  const json three = RunJson({"run", "-n", "3", "--json"});
  EXPECT_EQ(three["tokens"].size(), 3u);
  EXPECT_EQ(three["model"], "the story model in q8_0");
  EXPECT_NE(RunJson({"run", "--prompt", "Long ago", "-n", "9", "--json"})["tokens"],
            RunJson({"run", "-n", "9", "--json"})["tokens"]);
}

TEST(DoctorTest, ThisMachineIsHealthy) {
  const ProcessResult text = RunLockstepCommand({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  EXPECT_NE(text.out.find("scalar"), std::string::npos) << text.out;
  const ProcessResult structured = RunLockstepCommand({"doctor", "--json"});
  EXPECT_EQ(json::parse(structured.out)["healthy"], true);
}

// A machine that has g++ alone, and nvcc where no PATH hides it: as healthy as any, and told what
// it lacks.
TEST(DoctorTest, SaysWhatTheMachineHasAndLacks) {
  const TemporaryFolder folder;
  WriteWholeTextFile(folder.File("g++"), "#!/bin/sh\necho 'g++ (Debian) 12.2.0'\n");
  std::filesystem::permissions(folder.File("g++"), std::filesystem::perms::owner_all);
  const std::string path = "PATH=" + folder.path().string();
  const ProcessResult text = RunLockstepCommand({"doctor"}, {path});
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  for (const std::string_view line :
       {"\ntools           g++ 12.2.0", "\nlacks           clang++, cmake, ", ": ci/install\n",
        "\nlacks           chromium, node, npm: ci/install --pages\n", "\nmemory          ",
        "\nlimits          stack ", "\nfeatures        "}) {
    EXPECT_NE(text.out.find(line), std::string::npos) << text.out << "lacks: " << line;
  }
  const json object = json::parse(RunLockstepCommand({"doctor", "--json"}, {path}).out);
  EXPECT_EQ(object["healthy"], true);
  EXPECT_EQ(
      object["tools"][0],
      json(
          {{"name", "g++"}, {"there", true}, {"path", folder.File("g++")}, {"version", "12.2.0"}}));
  EXPECT_EQ(object["tools"][1],
            json({{"name", "clang++"}, {"there", false}, {"get", "ci/install"}}));
  EXPECT_TRUE(object["features"].is_object());
}

TEST(DoctorTest, KernelsThatDoNotExistAreAProblem) {
  const ProcessResult result = RunLockstepCommand({"doctor"}, {"LOCKSTEP_ISA=mmx"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_NE(result.out.find("PROBLEM"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace lockstep::cli
