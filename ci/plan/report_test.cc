#include "ci/plan/report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const PlanRun kRun = {"smoke", "7", "2 files differ from main", "lockstep gate --seed 7"};

PlanResult Mixed() {
  return {.parts = {{.name = "good",
                     .verdict = PartVerdict::kHolds,
                     .what = "HOLDS: 3 cells",
                     .reason = "caches/a.cc matches caches/*",
                     .command = "lockstep verify",
                     .log = "out/good/log",
                     .seconds = 1.5},
                    {.name = "bad",
                     .verdict = PartVerdict::kFailed,
                     .what = "exit code 1: <FOUND> \"x|y\" & 100%\x01\xc3",
                     .reason = "every part runs",
                     .command = "lockstep fuzz --seed 7",
                     .log = "out/bad/log",
                     .seconds = 2},
                    {.name = "late",
                     .verdict = PartVerdict::kNotRun,
                     .what = "the tier's 120 s had passed",
                     .reason = {},
                     .command = {},
                     .log = {}},
                    {.name = "other",
                     .verdict = PartVerdict::kUnaffected,
                     .what = "none of 2 changed files affects it",
                     .reason = {},
                     .command = {},
                     .log = {}}},
          .seconds = 3.5};
}

TEST(PlanReport, TheVerdictComesFirstThenWhatFailedWithItsCommand) {
  const std::string text = PlanText(kRun, Mixed());
  EXPECT_THAT(text, StartsWith("FAILED: 1 failed, 1 not run, 1 holds, 1 unaffected of tier smoke"));
  EXPECT_THAT(text, HasSubstr("  repeat  lockstep fuzz --seed 7\n  log     out/bad/log\n"));
  EXPECT_LT(text.find("bad FAILED"), text.find("late NOT RUN"));
  EXPECT_LT(text.find("late NOT RUN"), text.find("good "));
  EXPECT_THAT(text, HasSubstr("HOLDS: 3 cells [caches/a.cc matches caches/*]\n"));
  EXPECT_THAT(text, HasSubstr("repeat: lockstep gate --seed 7\n"));
  EXPECT_THAT(PlanText(kRun, {}), StartsWith("INCONCLUSIVE: no part"));
}

TEST(PlanReport, MarkdownCannotBeBrokenByWhatAPartPrints) {
  const std::string text = PlanMarkdown(kRun, Mixed());
  EXPECT_THAT(text, StartsWith("**FAILED: "));
  EXPECT_THAT(text, HasSubstr("\\<FOUND\\> \"x\\|y\""));
  EXPECT_THAT(text, HasSubstr("```sh\nlockstep fuzz --seed 7\n```"));
}

TEST(PlanReport, JsonHasEveryPart) {
  const auto json = nlohmann::json::parse(PlanJson(kRun, Mixed()));
  EXPECT_EQ(json["verdict"], "FAILED");
  ASSERT_EQ(json["parts"].size(), 4);
  EXPECT_EQ(json["parts"][2]["verdict"], "NOT RUN");
  EXPECT_EQ(json["parts"][0]["reason"], "caches/a.cc matches caches/*");
  EXPECT_EQ(json["parts"][1]["command"], "lockstep fuzz --seed 7");
}

TEST(PlanReport, JunitCountsAndEscapes) {
  const std::string xml = PlanJunit(kRun, Mixed());
  EXPECT_THAT(xml, HasSubstr("tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr("&lt;FOUND&gt; &quot;x|y&quot; &amp; 100%??"));
  EXPECT_THAT(PlanJunit(kRun, {}), HasSubstr("tests=\"1\" failures=\"0\" errors=\"1\""))
      << "an empty suite would count as passed";
}

TEST(PlanReport, AnAnnotationIsOneLineAPartThatDoesNotHold) {
  const std::string lines = PlanAnnotations(Mixed());
  EXPECT_THAT(lines, HasSubstr("::error title=lockstep gate%3A bad::FAILED: exit code 1"));
  EXPECT_THAT(lines, HasSubstr("100%25"));
  EXPECT_THAT(lines, HasSubstr("%0Arepeat: lockstep fuzz --seed 7\n"));
  EXPECT_THAT(lines, Not(HasSubstr("good")));
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2);
}

}  // namespace
}  // namespace lockstep
