// Each format says the verdict, and says it first; names and texts from outside stay text.
#include "reports/compare_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/results/json_schema.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

BenchRun MadeRun(double slower, double faster) {
  BenchRun run;
  run.machine = {.processor = "Some CPU", .processors = 2, .memory_mib = 24000};
  run.toolchain = "g++ 12";
  const auto add = [&](const std::string& name, double factor) {
    BenchResult& result = run.benchmarks.emplace_back();
    result.name = name;
    for (int32_t i = 0; i < 20; ++i) {
      result.samples.push_back({.value = factor * (0.002 + 0.00001 * (i / 2 % 5) + 1e-9 * i),
                                .round = i / 2,
                                .state = {.read_bandwidth_one = 4e10, .barrier_seconds = 3e-7}});
    }
  };
  add("same", 1);
  add("a|<b>, 50%", slower);
  add("quick", faster);
  add("few", 1);
  run.benchmarks.back().samples.resize(4);
  run.benchmarks[0].counters["instructions"] = 1000 * slower;
  run.benchmarks[2].digest = slower > 1 ? "ab" : "cd";
  return run;
}

Comparison Made() { return Compare(MadeRun(1, 1), MadeRun(1.1, 0.8), {}); }

// Equal but for a new benchmark, a new counter and an old benchmark that was listed.
Comparison Grown() {
  BenchRun before = MadeRun(1, 1), now = before;
  before.benchmarks.push_back({.name = "old<b>"});
  now.benchmarks.push_back({.name = "fresh|, %", .samples = {{.value = 0.002}}});
  now.benchmarks[0].counters["bytes"] = 64;
  return Compare(before, now, {.subject_is_newer = true, .gone = {"old<b>"}});
}

TEST(CompareReportTest, EveryFormTellsWhatOneSideAloneHas) {
  const Comparison grown = Grown();
  EXPECT_THAT(ComparisonSentence(grown), EndsWith("are not decided; 2 new, 1 gone"));
  EXPECT_THAT(OneSidedTexts(grown),
              ElementsAre("gone: benchmark 'old<b>'", "new: counter 'bytes' of 'same' (64)",
                          "new: benchmark 'fresh|, %' (2 ms)"));
  const std::string markdown = ComparisonMarkdown(grown, "c");
  const std::string told = markdown.substr(0, markdown.find("<details>"));
  EXPECT_THAT(told, HasSubstr("\n* new: benchmark 'fresh\\|, %' (2 ms)\n"));
  EXPECT_THAT(told, HasSubstr("\n* gone: benchmark 'old&lt;b>'\n"));
  EXPECT_THAT(told, HasSubstr("\n* new: counter 'bytes' of 'same' (64)\n"));
  const std::string html = ComparisonHtml(grown, "c");
  EXPECT_THAT(html, HasSubstr("</span> new: benchmark 'fresh|, %' (2 ms)</li>"));
  EXPECT_THAT(html, HasSubstr("</span> gone: benchmark 'old&lt;b&gt;'</li>"));
  const std::string xml = ComparisonJunit(grown);
  EXPECT_THAT(xml, HasSubstr("tests=\"7\" failures=\"0\" errors=\"0\" skipped=\"4\""));
  EXPECT_THAT(xml, HasSubstr("name=\"same#bytes\">\n    <skipped message=\"new: counter"));
  EXPECT_THAT(xml, HasSubstr("name=\"old&lt;b&gt;\">\n    <skipped message=\"gone: benchmark"));
  const std::string lines = ComparisonAnnotations(grown);
  EXPECT_THAT(lines, HasSubstr("::notice title=fresh|%2C %25::new: benchmark 'fresh|, %25'"));
  EXPECT_THAT(lines, HasSubstr("::notice title=old<b>::gone: benchmark"));
  const auto json = nlohmann::json::parse(ComparisonJson(grown, "c"));
  EXPECT_EQ(json["new"].size(), 2u);
  EXPECT_EQ(json["new"][0]["name"], "same#bytes");
  EXPECT_EQ(json["new"][0]["part"], "bytes");
  EXPECT_EQ(json["new"][1]["text"], "2 ms");
  EXPECT_EQ(json["gone"][0]["benchmark"], "old<b>");
  // Where nothing is of one side alone, nothing is said of it.
  EXPECT_THAT(ComparisonSentence(Made()), Not(HasSubstr("new")));
  EXPECT_THAT(ComparisonHtml(Made(), "c"), Not(HasSubstr("<ul class=\"alone\">")));
}

TEST(CompareReportTest, SentenceCountsWhatSpeaksAgainstIt) {
  EXPECT_EQ(ComparisonSentence(Made()),
            "REGRESSION: 3 of 4 benchmarks: 1 with changed bits, 1 with higher counters, 1 slower");
  EXPECT_EQ(ComparisonSentence(Compare(MadeRun(1, 1), MadeRun(1, 1), {})),
            "INCONCLUSIVE: 1 of 4 benchmarks are not decided");
  BenchRun a = MadeRun(1, 1), b = MadeRun(1, 0.8);
  a.benchmarks.pop_back();
  b.benchmarks.pop_back();
  EXPECT_EQ(ComparisonSentence(Compare(a, b, {})), "HOLDS: 2 of 3 benchmarks the same, 1 faster");
  a.build = b.build = "0123";
  EXPECT_THAT(ComparisonSentence(Compare(a, a, {})), HasSubstr("the same, byte for byte"));
}

TEST(CompareReportTest, VerdictsInWords) {
  const Comparison made = Made();
  EXPECT_EQ(VerdictText(made.benchmarks[0]), "same within 3.0 %");
  EXPECT_THAT(VerdictText(made.benchmarks[1]), StartsWith("slower by 10.0 % ["));
  EXPECT_THAT(VerdictText(made.benchmarks[2]), StartsWith("faster by 25.0 % ["));
  EXPECT_THAT(VerdictText(made.benchmarks[3]), HasSubstr("too few rounds"));
  BenchComparison near = made.benchmarks[3];
  near.rounds_needed = 1;
  EXPECT_EQ(VerdictText(near), "inconclusive, needs about 1 more round");
  near.in_noise = true;
  near.floor = 0.15;
  EXPECT_EQ(VerdictText(near), "inconclusive, equal builds differ by up to 15.0 % too");
  EXPECT_THAT(CounterTexts(made.benchmarks[0]),
              ElementsAre("instructions 1000 -> 1100 (+10.00 %)"));
  EXPECT_THAT(CounterTexts(made.benchmarks[2]), ElementsAre("bits changed: cd -> ab"));
  EXPECT_EQ(ReproachText(made.benchmarks[0]),
            "instructions 1000 -> 1100 (+10.00 %); same within 3.0 %");
  EXPECT_EQ(ValueText(0.00183, "s"), "1.83 ms");
  EXPECT_EQ(ValueText(2.5e-8, "s"), "25 ns");
  EXPECT_EQ(ValueText(46.08, "tokens/s"), "46.08 tokens/s");
}

TEST(CompareReportTest, MarkdownHasTheVerdictFirstAndFoldsWhatIsTheSame) {
  const std::string text = ComparisonMarkdown(Made(), "compare a b");
  EXPECT_THAT(text, StartsWith("**REGRESSION: 3 of 4"));
  const size_t fold = text.find("<details>");
  ASSERT_NE(fold, text.npos);
  EXPECT_THAT(text.substr(0, fold), HasSubstr("a\\|&lt;b>, 50% | slower"));
  EXPECT_THAT(text.substr(0, fold), HasSubstr("bits changed: cd -> ab"));
  const std::string same =
      ComparisonMarkdown(Compare(MadeRun(1, 1), MadeRun(1, 1), {}), "compare a b");
  EXPECT_THAT(same.substr(0, same.find("<details>")), Not(HasSubstr("| same within")));
  EXPECT_THAT(same, HasSubstr("`compare a b`"));
}

TEST(CompareReportTest, JunitHasACaseABenchmark) {
  const std::string xml = ComparisonJunit(Made());
  EXPECT_THAT(xml, HasSubstr("tests=\"4\" failures=\"3\" errors=\"0\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr("name=\"a|&lt;b&gt;, 50%\">\n    <failure message=\"slower by"));
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"inconclusive"));
}

TEST(CompareReportTest, AnnotationsEscapeWhatTheCommandsReserve) {
  const std::string lines = ComparisonAnnotations(Made());
  EXPECT_THAT(lines, HasSubstr("::error title=a|<b>%2C 50%25::slower by 10.0 %25 ["));
  EXPECT_THAT(lines, HasSubstr("::warning title=few::inconclusive"));
  EXPECT_THAT(lines, HasSubstr("::notice title=lockstep bench compare::REGRESSION: 3 of 4"));
}

TEST(CompareReportTest, JsonHoldsBothRunsAndNoiseFloorsComeFromEqualBuilds) {
  const TemporaryFolder folder;
  const std::string path = folder.File("comparison.json");
  const auto json = nlohmann::json::parse(ComparisonJson(Made(), "compare"));
  EXPECT_EQ(json["outcome"], "regression");
  EXPECT_EQ(json["benchmarks"][1]["verdict"], "slower");
  EXPECT_EQ(ParseRun(json["subject"].dump(), "subject"), Made().subject);
  WriteWholeTextFile(path, json.dump());
  EXPECT_THROW(ReadNoiseFloors(path), Error) << "the builds differ";
  BenchRun a = MadeRun(1, 1), b = MadeRun(1.02, 1);
  a.build = b.build = "0123";
  const Comparison aa = Compare(a, b, {});
  WriteWholeTextFile(path, ComparisonJson(aa, "compare"));
  EXPECT_EQ(ReadNoiseFloors(path).at("quick"), NoiseFloors(aa).at("quick"));
  EXPECT_NEAR(ReadNoiseFloors(path).at("a|<b>, 50%"), 0.02, 1e-6);
  WriteWholeTextFile(path, "[]");
  EXPECT_THROW(ReadNoiseFloors(path), Error);
}

TEST(CompareReportTest, ItsJsonFollowsItsSchemaAndNoOther) {
  const std::string schema = ComparisonSchema();
  BenchRun equal = MadeRun(1, 1);
  equal.build = "0123";
  for (const Comparison& comparison : {Made(), Grown(), Compare(equal, equal, {})}) {
    const auto finding = internal::CheckSchema(ComparisonJson(comparison, "compare"), schema);
    EXPECT_FALSE(finding.has_value()) << finding->place << " " << finding->what;
  }
  // One edit each, and where it is told.
  auto json = nlohmann::json::parse(ComparisonJson(Made(), "compare"));
  for (const char* what : {"new", "gone"}) {
    json[what] = {{{"name", "a#b"}, {"benchmark", "a"}, {"part", "b"}, {"text", ""}}};
  }
  const std::pair<const char*, nlohmann::json> edits[] = {
      {"/outcome", "fine"},
      {"/benchmarks/1/verdict", "FASTER"},
      {"/benchmarks/1/p_value", 1.5},
      {"/benchmarks/0/counters/0/worse", "yes"},
      {"/benchmarks/2/rounds", -1},
      {"/baseline/benchmarks/0/samples/3/value", 0},
      {"/subject/machine/fingerprint", "?"},
      {"/new/0/name", ""},
      {"/gone/0/part", 3},
  };
  for (const auto& [place, value] : edits) {
    auto other = json;
    const nlohmann::json::json_pointer pointer(place);
    ASSERT_TRUE(other.contains(pointer)) << place;
    other[pointer] = value;
    const auto finding = internal::CheckSchema(other.dump(), schema);
    ASSERT_TRUE(finding.has_value()) << place;
    EXPECT_EQ("/" + finding->place, place);
  }
}

TEST(CompareReportTest, PageNeedsNothingFromElsewhereAndEscapesNames) {
  const std::string html = ComparisonHtml(Made(), "compare a & b");
  EXPECT_THAT(html, HasSubstr("<title>REGRESSION: 3 of 4"));
  EXPECT_THAT(html, HasSubstr("a|&lt;b&gt;, 50%"));
  EXPECT_THAT(html, HasSubstr("✗ slower by 10.0 %"));
  EXPECT_THAT(html, HasSubstr("compare a &amp; b"));
  for (const char* reference : {"http", "src=", "url(", "<script", "@import", "<link", "<b>"}) {
    EXPECT_THAT(html, Not(HasSubstr(reference)));
  }
}

}  // namespace
}  // namespace lockstep
