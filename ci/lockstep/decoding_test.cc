// `lockstep run` with draws, penalties, stops and adapters, as a user calls it.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "caches/temporary_folder.h"
#include "ci/lockstep/test_process.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

ProcessResult RunTiny(const std::vector<std::string>& more) {
  std::vector<std::string> args = {
      "run", "--synthetic", "tiny-gqa-9x3-q8_0", "--prompt", "Once upon a time", "-n", "16"};
  args.insert(args.end(), more.begin(), more.end());
  return RunLockstepCommand(args);
}

json RunJson(std::vector<std::string> more) {
  more.emplace_back("--json");
  const ProcessResult result = RunTiny(more);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out);
}

TEST(DecodingTest, DrawsRepeatByTheirSeed) {
  const std::vector<std::string> warm = {"--temperature", "1.5", "--top-p", "0.95",
                                         "--sample-seed"};
  const auto with = [&](const char* seed, std::vector<std::string> more = {}) {
    std::vector<std::string> args = warm;
    args.emplace_back(seed);
    args.insert(args.end(), more.begin(), more.end());
    return RunJson(args);
  };
  const json one = with("7");
  EXPECT_EQ(with("7")["tokens"], one["tokens"]);
  EXPECT_NE(with("8")["tokens"], one["tokens"]);
  EXPECT_NE(RunJson({})["tokens"], one["tokens"]);
  // Whatever computes the logits, the draws are the same.
  EXPECT_EQ(with("7", {"--isa", "scalar", "--threads", "3", "--cache", "paged/4"})["tokens"],
            one["tokens"]);
  // One token to draw from is no draw.
  EXPECT_EQ(RunJson({"--temperature", "3", "--top-k", "1"})["tokens"], RunJson({})["tokens"]);
}

TEST(DecodingTest, TheJsonOfARunNamesItsSeedAndTheCommandThatRepeatsIt) {
  const json run = RunJson({"--temperature", "1.5", "--sample-seed", "18446744073709551615"});
  EXPECT_EQ(run["sample_seed"], "18446744073709551615");
  EXPECT_THAT(run["command"].get<std::string>(),
              HasSubstr("lockstep run --synthetic tiny-gqa-9x3-q8_0 --seed 1 --temperature 1.5 "
                        "--sample-seed 18446744073709551615 --prompt"));
  EXPECT_EQ(RunJson({})["sample_seed"], "1");
  EXPECT_THAT(RunTiny({}).err, HasSubstr("sample seed 1\n"));
}

TEST(DecodingTest, ARunNamesTheCommandThatRepeatsIt) {
  const ProcessResult result =
      RunTiny({"--temperature", "0.8", "--sample-seed", "3", "--stop", "a b"});
  EXPECT_THAT(result.err,
              HasSubstr("repeat: lockstep run --synthetic tiny-gqa-9x3-q8_0 --seed 1 --temperature "
                        "0.8 --sample-seed 3 --stop 'a b' --prompt 'Once upon a time' -n 16"));
}

TEST(DecodingTest, WhatMakesARunIsInTheCommandThatRepeatsIt) {
  const TemporaryFolder folder;
  const std::string draft = folder.File("draft.gguf");
  ASSERT_EQ(
      RunLockstepCommand({"synth", "--preset", "tiny-gqa-9x3-q8_0", "--out", draft}).exit_code, 0);
  const std::vector<std::string> kinds[] = {
      {"--cache", "paged/4", "--context", "24", "--context-shift", "2", "--isa", "scalar",
       "--threads", "3", "--watch"},
      {"--cache", "hybrid/2", "--device", "host-executor", "--gpu-layers", "2", "--threads", "1",
       "--no-digest"},
      {"--draft-lookup", "2", "--draft-tokens", "3", "--threads", "2", "--watch-full", "5"},
      {"--draft", draft, "--threads", "2"},
  };
  for (const auto& flags : kinds) {
    const ProcessResult result = RunTiny(flags);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("repeat: lockstep run --synthetic tiny-gqa-9x3-q8_0 --seed 1 "
                                      "--prompt 'Once upon a time' -n 16 " +
                                      fmt::format("{}\n", fmt::join(flags, " "))));
  }
}

TEST(DecodingTest, ForbiddenAndPenalisedTokensStayAway) {
  const json plain = RunJson({});
  const int first = plain["tokens"][0];
  const json forbidden = RunJson({"--logit-bias", std::to_string(first) + "=-inf"});
  for (const json& token : forbidden["tokens"]) EXPECT_NE(token, first);
  const json once = RunJson({"--presence-penalty", "1000", "--penalty-tokens", "-1"});
  std::set<int> seen;
  for (const json& token : once["tokens"])
    EXPECT_TRUE(seen.insert(token.get<int>()).second) << token;
}

TEST(DecodingTest, TextEndsBeforeAStop) {
  const std::string text = RunJson({})["text"];
  ASSERT_GT(text.size(), 12u);
  const std::string stop = text.substr(6, 3);
  const json stopped = RunJson({"--stop", stop, "--stop", "never there"});
  EXPECT_EQ(stopped["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped["stop"], "stop");
  EXPECT_LT(stopped["tokens"].size(), 16u);
  EXPECT_EQ(RunTiny({"--stop", stop}).out, text.substr(0, text.find(stop)) + "\n");
}

TEST(DecodingTest, LogProbabilitiesAreOfTheModel) {
  const json run = RunJson({"--logprobs", "3", "--temperature", "2"});
  ASSERT_EQ(run["logprobs"].size(), 16u);
  for (size_t i = 0; i < 16; ++i) {
    const json& entry = run["logprobs"][i];
    ASSERT_EQ(entry["top"].size(), 3u);
    double before = 0;
    for (const json& pair : entry["top"]) {
      EXPECT_LE(pair[1], before);
      before = pair[1];
      if (pair[0] == run["tokens"][i]) {
        EXPECT_EQ(pair[1], entry["chosen"]);
      }
    }
    EXPECT_LE(entry["chosen"], entry["top"][0][1]);
  }
  const json all = RunJson({"--logprobs", "320"});
  double sum = 0;
  for (const json& pair : all["logprobs"][0]["top"]) sum += std::exp(pair[1].get<double>());
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST(DecodingTest, WhatCannotBeUsedIsRefusedByName) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--temperature", "warm"}, "--temperature: 'warm' is no number"},
      {{"--temperature", "-1"}, "--temperature: -1"},
      {{"--top-p", "0"}, "--top-p: 0"},
      {{"--top-k", "-1"}, "--top-k"},
      {{"--logit-bias", "5"}, "--logit-bias: '5' is no token and its bias"},
      {{"--logit-bias", "x=1"}, "--logit-bias: 'x=1'"},
      {{"--logit-bias", "320=1"}, "token 320 is outside [0, 320)"},
      {{"--lora", "none.gguf"}, "none.gguf: cannot open"},
      {{"--lora", "none.gguf=inf"}, "--lora: the scale inf is not finite"}};
  for (const auto& [args, message] : cases) {
    const ProcessResult result = RunTiny(args);
    EXPECT_EQ(result.exit_code, 2) << args[1];
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST(DecodingTest, DraftsChangeNoBit) {
  const TemporaryFolder folder;
  const std::string same = folder.File("same.gguf"), other = folder.File("other.gguf");
  for (const auto& [preset, file] :
       {std::pair{"tiny-gqa-9x3-q8_0", same}, std::pair{"tiny-mha-4x4-f32", other}}) {
    ASSERT_EQ(RunLockstepCommand({"synth", "--preset", preset, "--out", file}).exit_code, 0);
  }
  const json plain = RunJson({});
  const json drafted = RunJson({"--draft", same, "--draft-tokens", "3"});
  EXPECT_EQ(drafted["digest"], plain["digest"]);
  EXPECT_EQ(drafted["drafts"]["accepted"], drafted["drafts"]["proposed"]);
  EXPECT_EQ(RunJson({"--draft-lookup", "2"})["digest"], plain["digest"]);
  const ProcessResult mixed = RunTiny({"--draft", other});
  EXPECT_EQ(mixed.exit_code, 2);
  EXPECT_THAT(mixed.err, HasSubstr("has 288 tokens, the model has 320"));
  EXPECT_EQ(RunTiny({"--draft", same, "--draft-lookup", "2"}).exit_code, 2);
}

TEST(DecodingTest, AdaptersComeFromFiles) {
  const TemporaryFolder folder;
  const std::string file = folder.File("a=1.gguf");
  const ProcessResult made = RunLockstepCommand(
      {"synth", "--preset", "tiny-gqa-9x3-q8_0", "--lora", "4", "--seed", "9", "--out", file});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const json plain = RunJson({}), adapted = RunJson({"--lora", file});
  EXPECT_NE(adapted["digest"], plain["digest"]);
  EXPECT_EQ(RunJson({"--lora", file + "=1"})["digest"], adapted["digest"]);
  EXPECT_EQ(RunJson({"--lora", file + "=0"})["digest"], plain["digest"]);
  EXPECT_NE(RunJson({"--lora", file, "--lora", file})["digest"], adapted["digest"]);
  EXPECT_EQ(RunJson({"--lora", file, "--cache", "paged/4", "--threads", "3"})["digest"],
            adapted["digest"]);
  // Every cache, on both write paths, with them.
  const auto verified = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"verify", "--synthetic", "tiny-gqa-9x3-q8_0", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const ProcessResult result = RunLockstepCommand(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  };
  const json bare = verified({}), with = verified({"--lora", file + "=0.5"});
  EXPECT_EQ(with["cells"].size(), bare["cells"].size());
  EXPECT_NE(with["cells"][0], bare["cells"][0]);
  EXPECT_EQ(RunLockstepCommand({"verify", "--matrix", "--lora", file}).exit_code, 2);
  const ProcessResult other = RunLockstepCommand(
      {"run", "--synthetic", "tiny-mha-4x4-f32", "--prompt", "x", "--lora", file});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("shape is"));
}

}  // namespace
}  // namespace lockstep::cli
