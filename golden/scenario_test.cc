#include "golden/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "caches/error.h"
#include "engine/story.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kToml = R"(why = "A prompt in two cuts, then greedy tokens."
covers = ["prefill_step", "decode_step"]
caches = ["quantized/q8_0+q4_0/w4", "simple", "paged/4"]
max_length = 24
step = 8
blocks = 7
prompt = "Once"
script = """
prefill cuts=3,1 tokens=7
decode n=2
"""
[model]
preset = "tiny-gqa-9x3-q8_0"
seed = 5
[[gap]]
op = 0
after = 2
rows = 1
)";

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text(kToml);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string ErrorOf(const std::string& toml) {
  try {
    ParseScenario(toml, "a-case", "case.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ScenarioTest, ReadsEveryField) {
  const Scenario scenario = ParseScenario(kToml, "a-case", "case.toml");
  EXPECT_EQ(scenario.name, "a-case");
  EXPECT_EQ(scenario.why, "A prompt in two cuts, then greedy tokens.");
  EXPECT_THAT(scenario.covers, ElementsAre("prefill_step", "decode_step"));
  EXPECT_THAT(scenario.caches, ElementsAre("quantized/q8_0+q4_0/w4", "simple", "paged/4"));
  EXPECT_EQ(scenario.model, (ScenarioModelName{.preset = "tiny-gqa-9x3-q8_0", .seed = 5}));
  EXPECT_EQ(scenario.max_length, 24);
  EXPECT_EQ(scenario.step, 8);
  EXPECT_EQ(scenario.blocks, 7);
  EXPECT_EQ(scenario.prompt, "Once");
  EXPECT_THAT(scenario.gaps, ElementsAre(ScenarioGap{0, 2, 1}));
  ASSERT_EQ(scenario.ops.size(), 2u);
  EXPECT_EQ(EngineOpText(scenario.ops[0]), "prefill cuts=3,1 tokens=7");
  EXPECT_EQ(EngineOpText(scenario.ops[1]), "decode n=2");
}

TEST(ScenarioTest, RefusesWhatItDoesNotKnowWithLineAndRemedy) {
  const auto says = [](std::string_view line, std::string_view what) {
    return AllOf(HasSubstr("case.toml, line " + std::string(line) + ":"),
                 HasSubstr(std::string(what)));
  };
  EXPECT_THAT(ErrorOf(Replaced("step = 8", "stop = 8")), says("5", "'stop' is not known here"));
  EXPECT_THAT(ErrorOf(Replaced("step = 8", "stop = 8")), HasSubstr("golden/scenario.h"));
  EXPECT_THAT(ErrorOf(Replaced("max_length = 24\n", "")), says("1", "'max_length' is missing"));
  EXPECT_THAT(ErrorOf(Replaced("= 24", "= 513")), says("4", "no whole number from 1 to 512"));
  EXPECT_THAT(ErrorOf(Replaced("= 24", "= \"24\"")), says("4", "no whole number"));
  EXPECT_THAT(ErrorOf(Replaced("tokens.\"", "tokens\"")), says("1", "'why' is no sentence"));
  EXPECT_THAT(ErrorOf(Replaced("\"decode_step\"", "\"decoding\"")), says("2", "'decoding'"));
  EXPECT_THAT(ErrorOf(Replaced("\"decode_step\"", "\"prefill_step\"")), says("2", "twice"));
  EXPECT_THAT(ErrorOf(Replaced("\"simple\"", "\"simpel\"")), HasSubstr("simpel"));
  EXPECT_THAT(ErrorOf(Replaced("decode n=2", "decode m=2")), says("10", "no field 'm'"));
  EXPECT_THAT(ErrorOf(Replaced("preset = \"tiny", "preset = \"tidy")), HasSubstr("no preset"));
  EXPECT_THAT(ErrorOf(Replaced("seed = 5", "sead = 5")), HasSubstr("'seed' is missing"));
  EXPECT_THAT(ErrorOf(Replaced("seed = 5", "seed = 5\nfile = \"x\"")), HasSubstr("'file' is not"));
  EXPECT_THAT(ErrorOf(Replaced("after = 2", "after = 4")), says("15", "none behind 4"));
  EXPECT_THAT(ErrorOf(Replaced("op = 0", "op = 1")), says("15", "operation 1 is no prefill"));
  EXPECT_THAT(ErrorOf(Replaced("rows = 1", "rows = 0")), HasSubstr("'rows'"));
  EXPECT_THAT(ErrorOf(Replaced("= 24", "= = 24")), says("4", "correct the TOML"));
  EXPECT_THAT(ErrorOf(Replaced("preset = \"tiny-gqa-9x3-q8_0\"\nseed = 5",
                               "file = \"x.gguf\"\ndigest = \"12\"")),
              HasSubstr("no digest of 32"));
}

// The digest is of what decides the facts, and of nothing else.
TEST(ScenarioTest, DigestIsOfWhatDecidesTheFacts) {
  const auto digest = [](const std::string& toml) {
    return ScenarioDigest(ParseScenario(toml, "a-case", "case.toml"));
  };
  const Digest own = digest(std::string(kToml));
  EXPECT_EQ(digest(Replaced("greedy", "chosen")), own);
  EXPECT_EQ(digest(Replaced("\"simple\", ", "")), own);
  EXPECT_EQ(digest(Replaced("\"prefill_step\", ", "")), own);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"= 24", "= 25"},
                                                        {"step = 8", "step = 9"},
                                                        {"blocks = 7", "blocks = 8"},
                                                        {"\"Once\"", "\"One\""},
                                                        {"cuts=3,1", "cuts=3,2"},
                                                        {"decode n=2", "decode n=3"},
                                                        {"seed = 5", "seed = 6"},
                                                        {"9x3-q8_0", "28x4-q4_0"},
                                                        {"after = 2", "after = 1"}}) {
    EXPECT_NE(digest(Replaced(from, to)), own) << to;
  }
}

TEST(ScenarioTest, CachesOfOneWayToStoreRowsShareAFile) {
  const auto groups = GroupsOf(ParseScenario(kToml, "a-case", "case.toml"));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].rows, "f32");
  EXPECT_THAT(groups[0].caches, ElementsAre("simple", "paged/4"));
  EXPECT_EQ(groups[1].rows, "q8_0+q4_0-w4");
  EXPECT_EQ(RowsName(ParseCacheSpec("quantized/f16+f16/w0")), "f16");
  EXPECT_EQ(RowsName(ParseCacheSpec("quantized/q8_0+q4_0/w4-f16")), "q8_0+q4_0-w4-f16");
}

TEST(ScenarioTest, PromptHasToFillTheFirstPrefill) {
  const Scenario scenario =
      ParseScenario(Replaced("\"Once\"", "\"Once upon a time, there\""), "a-case", "case.toml");
  try {
    LoadScenarioModel(scenario, "");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the first prefill takes 4"));
  }
}

TEST(ScenarioTest, SaysWhenAModelFileIsNotHere) {
  Scenario scenario = ParseScenario(kToml, "a-case", "case.toml");
  EXPECT_EQ(WhyNotHere(scenario, "nowhere"), std::nullopt);
  scenario.model = {.preset = {}, .file = "absent.gguf", .digest = std::string(32, '0')};
  EXPECT_THAT(WhyNotHere(scenario, "nowhere").value_or(""), HasSubstr("LOCKSTEP_MODELS"));
}

// Lockstep comes with it: a case of it runs everywhere, on that very file.
TEST(ScenarioTest, TheStoryModelIsAlwaysHere) {
  Scenario scenario = ParseScenario(kToml, "a-case", "case.toml");
  scenario.prompt.clear();
  for (const StoryModel& story : StoryModels()) {
    scenario.model = {
        .preset = {}, .file = std::string(story.file), .digest = std::string(story.digest)};
    EXPECT_EQ(WhyNotHere(scenario, "nowhere"), std::nullopt);
    EXPECT_EQ(LoadScenarioModel(scenario, "nowhere").digest.Hex(), story.digest);
    scenario.model.digest[0] ^= 1;
    EXPECT_THROW(LoadScenarioModel(scenario, "nowhere"), Error);
  }
}

}  // namespace
}  // namespace lockstep
