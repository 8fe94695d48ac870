// `lockstep batch`, as a user calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "ci/lockstep/test_process.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::string_view kTexts =
    "Once upon a time there was a fox\n"
    "\n"
    "Once upon a time there was a hen\r\n"
    "Twice upon a time\n"
    "Once upon a time there was a fox\n";

ProcessResult Batch(std::string_view texts, std::vector<std::string> more,
                    const std::string& new_tokens = "5") {
  const std::string path = WriteTestFile("prompts", std::as_bytes(std::span(texts)));
  std::vector<std::string> args = {"batch", "--synthetic", "tiny-gqa-9x3-q8_0", "--prompts",
                                   path,    "-n",          new_tokens};
  args.insert(args.end(), more.begin(), more.end());
  return RunLockstepCommand(args);
}

std::vector<json> Lines(const ProcessResult& result) {
  std::vector<json> lines;
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(BatchCommandTest, P2_SharedBeginningsChangeNoBit) {
  const ProcessResult shared = Batch(kTexts, {"--block-size", "4", "--check"});
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_THAT(shared.err, HasSubstr("4 texts, 2 began like one before"));
  EXPECT_THAT(shared.err, HasSubstr("all as without"));
  const std::vector<json> lines = Lines(shared);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["attached"], 0);
  EXPECT_GT(lines[1]["attached"], 0);
  EXPECT_EQ(lines[1]["line"], 3);
  EXPECT_EQ(lines[2]["attached"], 0);
  EXPECT_EQ(lines[3]["digest"], lines[0]["digest"]);
  const ProcessResult run =
      RunLockstepCommand({"run", "--synthetic", "tiny-gqa-9x3-q8_0", "-n", "5", "--json",
                          "--prompt", "Once upon a time there was a hen"});
  EXPECT_EQ(json::parse(run.out)["digest"], lines[1]["digest"]);
  // A pool for one text alone, and blocks that no two texts share.
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--block-size", "1", "--blocks", "60"}, {"--block-size", "64"}}) {
    const std::vector<json> others = Lines(Batch(kTexts, flags));
    ASSERT_EQ(others.size(), lines.size());
    for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(others[i]["digest"], lines[i]["digest"]);
  }
}

TEST(BatchCommandTest, F5_TextsTogetherAreAsAlone) {
  for (const char* temperature : {"0", "1.2"}) {
    const std::vector<json> in_turn =
        Lines(Batch(kTexts, {"--temperature", temperature, "--sample-seed", "9"}));
    ASSERT_EQ(in_turn.size(), 4u);
    // A pool for one text and a half, and a row or two a step.
    for (const std::vector<std::string>& flags :
         {std::vector<std::string>{"--parallel", "3"},
          {"--parallel", "4", "--budget", "2", "--arrivals", "5"},
          {"--parallel", "4", "--block-size", "4", "--blocks", "14", "--threads", "2"}}) {
      std::vector<std::string> all = {"--temperature", temperature, "--sample-seed", "9",
                                      "--check"};
      all.insert(all.end(), flags.begin(), flags.end());
      const ProcessResult result = Batch(kTexts, all);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(result.err, HasSubstr("all as without"));
      EXPECT_THAT(result.err, HasSubstr("4 texts, 20 new tokens in "));
      const std::vector<json> lines = Lines(result);
      ASSERT_EQ(lines.size(), 4u);
      for (size_t i = 0; i < lines.size(); ++i) {
        EXPECT_EQ(lines[i]["line"], in_turn[i]["line"]);
        EXPECT_EQ(lines[i]["digest"], in_turn[i]["digest"]);
        EXPECT_EQ(lines[i]["tokens"], in_turn[i]["tokens"]);
      }
    }
  }
}

// Where a text ends and what is told of its tokens: in turn, together, and as `run` has it.
TEST(BatchCommandTest, F5_StopsAndLogProbabilitiesAreThoseOfRun) {
  const std::vector<std::string> drawn = {"--temperature", "1.2", "--sample-seed", "9"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), drawn.begin(), drawn.end());
    return Batch(kTexts, more, "12");
  };
  const std::vector<json> unstopped = Lines(with({}));
  ASSERT_EQ(unstopped.size(), 4u);
  const std::string whole = unstopped[1]["text"];
  const std::string stop = "filler_2";  // inside a token's piece
  ASSERT_NE(whole.find(stop), whole.npos) << whole;
  const ProcessResult in_turn = with({"--stop", stop, "--logprobs", "2"});
  const ProcessResult together =
      with({"--stop", stop, "--logprobs", "2", "--parallel", "3", "--check"});
  EXPECT_EQ(together.exit_code, 0) << together.err;
  EXPECT_THAT(in_turn.err, HasSubstr("sample seed 9,"));
  EXPECT_THAT(together.err, HasSubstr("sample seed 9,"));
  std::vector<json> lines = Lines(in_turn), others = Lines(together);
  ASSERT_EQ(lines.size(), 4u);
  ASSERT_EQ(others.size(), 4u);
  for (size_t i = 0; i < lines.size(); ++i) {
    for (json* line : {&lines[i], &others[i]}) line->erase("attached");
    EXPECT_EQ(others[i].dump(), lines[i].dump());
    EXPECT_EQ(lines[i]["logprobs"].size(), lines[i]["tokens"].size());
  }
  EXPECT_EQ(lines[1]["stop"].get<std::string>(), "stop");
  EXPECT_EQ(lines[1]["text"].get<std::string>(), whole.substr(0, whole.find(stop)));
  const ProcessResult run = RunLockstepCommand(
      {"run", "--synthetic", "tiny-gqa-9x3-q8_0", "-n", "12", "--json", "--prompt",
       "Once upon a time there was a hen", "--temperature", "1.2", "--sample-seed",
       lines[1]["sample_seed"].get<std::string>(), "--stop", stop, "--logprobs", "2"});
  const json alone = json::parse(run.out);
  for (const char* what : {"tokens", "text", "stop", "logprobs", "digest", "sample_seed"}) {
    EXPECT_EQ(alone[what].dump(), lines[1][what].dump()) << what;
  }
}

TEST(BatchCommandTest, ComparingNothingProvesNothing) {
  const ProcessResult result = Batch("Once\nTwice\n", {"--check"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no two texts share a block of 16 tokens"));
}

TEST(BatchCommandTest, TextsThatNeverMeetProveNothing) {
  const ProcessResult result = Batch(kTexts, {"--parallel", "1", "--check"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no step had rows of two texts"));
}

TEST(BatchCommandTest, WrongUseIsRefused) {
  for (const char* flag : {"--budget", "--arrivals"}) {
    const ProcessResult alone = Batch(kTexts, {flag, "3"});
    EXPECT_EQ(alone.exit_code, 2);
    EXPECT_THAT(alone.err, HasSubstr("give --parallel N"));
  }
  EXPECT_THAT(Batch("\n\n", {}).err, HasSubstr("it has no text"));
  const ProcessResult few = Batch(kTexts, {"--block-size", "2", "--blocks", "1"});
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_THAT(few.err, HasSubstr("the longest text needs"));
  const ProcessResult large = Batch("One\n" + std::string(5000, 'x') + "\n", {});
  EXPECT_EQ(large.exit_code, 2);
  EXPECT_THAT(large.err, HasSubstr(":2: the text and 5 new tokens need"));
}

}  // namespace
}  // namespace lockstep::cli
