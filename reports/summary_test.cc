// A report: every kind of file becomes a part with the right verdict, what cannot be read is
// refused with its place, and every form of the report says the same.
#include "reports/summary.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/history.h"
#include "reports/markup.h"
#include "reports/results/json_schema.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ReportPart PartOf(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = folder.File("part");
  WriteWholeTextFile(path, text);
  ReportPart part = ReadReportPart(path);
  EXPECT_EQ(part.source, path);
  return part;
}

std::string Refusal(const std::string& text) {
  try {
    PartOf(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

json Verify() {
  return json::parse(R"({
    "outcome": "differs", "verdict": "DIFFERS: 1 of 2 cells", "command": "lockstep verify",
    "kernels": "scalar", "cells": [
    {"cache": "simple", "write_path": "direct", "against": "simple legacy", "verdict": "DIFFERS",
     "counts": {"reserves_granted": 3, "reserves_refused": 0, "commits": 3, "updates": 0},
     "difference": {"sentence": "step 2, layer 1, K row"}},
    {"cache": "cuda", "write_path": "direct", "against": "", "verdict": "not applicable",
     "reason": "refuses host slots"}]})");
}

TEST(ReportPartTest, VerifyGivesTheTableOfCachesAndGating) {
  const ReportPart part = PartOf(Verify().dump());
  EXPECT_EQ(part.verdict, ReportVerdict::kFails);
  EXPECT_THAT(part.complaints, ElementsAre("simple, direct, against simple legacy: step 2, layer "
                                           "1, K row"));
  EXPECT_THAT(part.table.rows,
              ElementsAre(ElementsAre("simple", "direct", "3", "0", "3", "0", "DIFFERS"),
                          ElementsAre("cuda", "direct", "", "", "", "", "refuses host slots")));
  json holds = Verify();
  holds["outcome"] = "holds";
  holds["cells"][0].erase("difference");
  EXPECT_EQ(PartOf(holds.dump()).verdict, ReportVerdict::kHolds);
}

TEST(ReportPartTest, AMatrixComplainsOfWhatIsNotEqual) {
  const ReportPart part = PartOf(R"({
    "outcome": "unproved", "verdict": "UNPROVED", "command": "c", "comparisons": 4, "axes": [
    {"axis": "isa", "control": "x", "control_caught": false, "cells": [
      {"value": "avx2", "verdict": "unproved", "comparisons": 4, "detail": "x: not seen"},
      {"value": "aarch64", "verdict": "not available here", "comparisons": 0}]}]})");
  EXPECT_EQ(part.verdict, ReportVerdict::kOpen);
  EXPECT_THAT(part.complaints, ElementsAre("isa avx2: unproved: x: not seen"));
  EXPECT_EQ(part.table.rows[0].back(), "x MISSED");
}

TEST(ReportPartTest, FaultsAreCountedByClass) {
  const auto fault = [](const char* name, const char* class_name, const char* verdict,
                        bool reference) {
    return json{
        {"name", name},        {"class", class_name},        {"verdict", verdict},
        {"stands_for", "a#1"}, {"expected_catcher", "fuzz"}, {"reference_catches", reference}};
  };
  const json faults = {fault("a", "F01", "caught", true), fault("b", "F01", "missed", false),
                       fault("c", "S1", "timed out", false)};
  const ReportPart part = PartOf(faults.dump());
  EXPECT_EQ(part.verdict, ReportVerdict::kFails);
  EXPECT_EQ(part.sentence, "1 of 3 planted faults are caught; 1 by the reference's suite");
  // What timed out is not caught.
  EXPECT_THAT(part.complaints, ElementsAre("b (F01): missed", "c (S1): timed out"));
  EXPECT_THAT(part.table.rows,
              ElementsAre(ElementsAre("F01", "2", "1", "1"), ElementsAre("S1", "1", "0", "0")));
}

TEST(ReportPartTest, BenchmarksAreDrawnAndChangedBitsComplained) {
  const auto bench = [](const char* name, bool regressed, bool bits) {
    return json{{"name", name},
                {"text", "same within 3 %"},
                {"regressed", regressed},
                {"verdict", "same"},
                {"ratio", 1.01},
                {"low", 0.99},
                {"high", 1.02},
                {"detectable", 0.02},
                {"rounds", 8},
                {"bits_changed", bits},
                {"counters", json::array()}};
  };
  json comparison = {{"format", "lockstep-bench-comparison"},
                     {"outcome", "regression"},
                     {"sentence", "REGRESSION"},
                     {"command", "c"}};
  comparison["benchmarks"] = {bench("a<b>", true, true), bench("c", false, false)};
  const ReportPart part = PartOf(comparison.dump());
  EXPECT_EQ(part.verdict, ReportVerdict::kFails);
  EXPECT_THAT(part.complaints, ElementsAre("a<b>: same within 3 %, other bits"));
  ASSERT_EQ(part.pictures.size(), 1u);
  EXPECT_THAT(part.pictures[0].svg, HasSubstr("a&lt;b&gt;"));
  EXPECT_THAT(part.pictures[0].svg, HasSubstr("width=\"340\"")) << "a phone's";
  EXPECT_THAT(part.pictures[0].svg, Not(HasSubstr("<b>")));
  // What one side alone has is told and decides nothing.
  comparison["outcome"] = "holds";
  comparison["benchmarks"] = {bench("c", false, false)};
  comparison["new"] = {
      {{"name", "d#bytes"}, {"benchmark", "d"}, {"part", "bytes"}, {"text", "64"}}};
  comparison["gone"] = {{{"name", "e"}, {"benchmark", "e"}, {"text", ""}}};
  const ReportPart grown = PartOf(comparison.dump());
  EXPECT_EQ(grown.verdict, ReportVerdict::kHolds);
  EXPECT_THAT(grown.table.rows, ElementsAre(testing::Contains("same within 3 %"),
                                            ElementsAre("e", "gone", "", "", "", ""),
                                            ElementsAre("d#bytes", "new: 64", "", "", "", "")));
}

TEST(ReportPartTest, AHistoryShowsItsSeriesAndWhereItGotSlower) {
  const TemporaryFolder folder;
  const std::string path = folder.File("runs.sqlite");
  {
    History history(path);
    for (int i = 0; i < 20; ++i) {
      BenchRun run{.machine = {.processor = "p", .processors = 2, .memory_mib = 9}};
      run.commit = fmt::format("commit-{}", i);
      for (const std::string name : {"steady", "slower"}) {
        const double level = name == "slower" && i >= 12 ? 1.5 : 1;
        run.benchmarks.push_back({.name = name, .samples = {{.value = level + 0.001 * (i % 3)}}});
      }
      history.Add(run);
    }
  }
  const ReportPart part = ReadReportPart(path);
  EXPECT_EQ(part.verdict, ReportVerdict::kFails);
  ASSERT_EQ(part.complaints.size(), 1u);
  EXPECT_THAT(part.complaints[0], HasSubstr("between commit-11 and commit-12"));
  ASSERT_EQ(part.pictures.size(), 2u);
  EXPECT_EQ(part.pictures[0].caption, "slower");  // what changed comes first
  EXPECT_THAT(part.pictures[0].svg, HasSubstr("bad-mark"));
  EXPECT_THAT(part.pictures[1].svg, Not(HasSubstr("bad-mark")));
  // The axis, and by how much the level changed, for those who cannot hover.
  EXPECT_THAT(part.pictures[0].svg, HasSubstr(">x1.00</text>"));
  EXPECT_THAT(part.pictures[0].svg, HasSubstr(">x1.500</text>"));
  EXPECT_THAT(part.pictures[0].svg, HasSubstr(">older</text>"));
}

size_t CountIn(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(ReportPartTest, AScriptIsRunAgainAndDrawn) {
  const ReportPart part = PartOf(
      "# What it shows.\n\n  # Who saw it.\n"
      "cache paged/4 layers=1 heads=1 dim=2 max=9\nupdate at=0..5 rows=1\nrollback to=3\n"
      "reserve at=3\nwrite rows=2\ncommit at=3\n");
  EXPECT_EQ(part.verdict, ReportVerdict::kHolds) << part.sentence;
  ASSERT_EQ(part.pictures.size(), 1u);
  const std::string& svg = part.pictures[0].svg;
  // Six rows of the update and the committed one, the reserved one, the length that is left.
  EXPECT_EQ(CountIn(svg, "class=\"good-box\""), 7u);
  EXPECT_EQ(CountIn(svg, "class=\"open-box\""), 1u);
  EXPECT_EQ(CountIn(svg, "bad-mark"), 1u);
  EXPECT_EQ(CountIn(svg, ">block "), 3u);
  EXPECT_EQ(CountIn(svg, "class=\"frame\""), 0u);
}

TEST(ReportPartTest, WhatWasRefusedOrFailedIsNotDrawnAsWritten) {
  const ReportPart part = PartOf(
      "cache paged/4 layers=1 heads=1 dim=2 max=9\nupdate at=0..1 rows=1\n"
      "reserve at=2..5\nupdate at=9 rows=2\nreserve at=2\n");
  EXPECT_EQ(part.verdict, ReportVerdict::kHolds) << part.sentence;
  ASSERT_EQ(part.pictures.size(), 1u);
  const std::string& svg = part.pictures[0].svg;
  EXPECT_EQ(CountIn(svg, "class=\"good-box\""), 2u);
  EXPECT_EQ(CountIn(svg, "class=\"open-box\""), 1u);
  EXPECT_EQ(CountIn(svg, ">refused<"), 1u);
  EXPECT_EQ(CountIn(svg, ">threw<"), 1u);
}

TEST(ReportPartTest, AnExplanationIsAMapOfLayersAndStages) {
  const auto one = [](bool holds, int layer) {
    json explanation = {{"case", "c"}, {"rows", "f32"}, {"cache", "simple"}, {"holds", holds}};
    if (!holds) {
      explanation["first"] = {{"sentence", "step 1"}, {"fact", "cache_key"}, {"layer", layer}};
      explanation["cause"] = {{"class", "k/v swapped"}, {"evidence", "3 of 3 heads"}};
    }
    return explanation;
  };
  json explain = {{"holds", false}, {"command", "c"}};
  explain["explanations"] = {one(true, 0), one(false, 2), one(false, 2)};
  const ReportPart part = PartOf(explain.dump());
  EXPECT_EQ(part.sentence, "2 of 3 golden files differ");
  ASSERT_EQ(part.pictures.size(), 1u);
  EXPECT_THAT(part.pictures[0].text, HasSubstr("cache_key at layer 2: 2 files"));
  EXPECT_THAT(part.pictures[0].svg, HasSubstr("bad-box"));
}

TEST(ReportPartTest, WhatIsNoPartIsRefusedWithItsFile) {
  EXPECT_THAT(Refusal("{}"), HasSubstr("is nothing that a report is made of"));
  EXPECT_THAT(Refusal("no json"), HasSubstr("is nothing that a report is made of"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("is nothing that a report is made of"));
  EXPECT_THAT(Refusal("cache simple layers=1\n"), HasSubstr("its cache cannot be made"));
  // One that is cut or of another version is not green for what it lacks.
  json verify = Verify();
  verify["cells"][0].erase("verdict");
  EXPECT_THAT(Refusal(verify.dump()), HasSubstr("lacks what such a file has"));
  verify = Verify();
  verify["outcome"] = "fine";
  EXPECT_THAT(Refusal(verify.dump()), HasSubstr("'fine'"));
  EXPECT_THROW(ReadReportPart("/absent"), Error);
}

Report Mixed() {
  Report report{.title = "A <report>"};
  for (const ReportVerdict verdict :
       {ReportVerdict::kHolds, ReportVerdict::kFails, ReportVerdict::kOpen}) {
    report.parts.push_back({.title = fmt::format("part {}", ReportVerdictName(verdict)),
                            .verdict = verdict,
                            .sentence = "a | b < c",
                            .table = {.header = {"x"}, .rows = {{"<T> | y"}}},
                            .command = "lockstep x",
                            .source = "file"});
    if (verdict == ReportVerdict::kFails) report.parts.back().complaints = {"layer <1>\nrow"};
  }
  return report;
}

TEST(ReportTest, TheWorstPartIsTheVerdictAndNoPartIsNoProof) {
  EXPECT_EQ(Report().verdict(), ReportVerdict::kOpen);
  EXPECT_EQ(Report().Sentence(), "INCONCLUSIVE: 0 of 0 parts");
  Report report = Mixed();
  EXPECT_EQ(report.Sentence(), "FAILS: 1 of 3 parts: part FAILS");
  std::erase_if(report.parts,
                [](const ReportPart& p) { return p.verdict == ReportVerdict::kFails; });
  EXPECT_EQ(report.Sentence(), "INCONCLUSIVE: 1 of 2 parts: part open");
  report.parts.pop_back();
  EXPECT_EQ(report.Sentence(), "HOLDS: 1 parts");
}

TEST(ReportTest, EveryFormSaysTheVerdictFirstAndTheWorstPartsBeforeOthers) {
  const Report report = Mixed();
  for (const std::string& text : {ReportText(report), ReportMarkdown(report)}) {
    EXPECT_LT(text.find("FAILS: 1 of 3"), 4u);
    EXPECT_LT(text.find("part FAILS", text.find('\n')), text.find("part open")) << text;
    EXPECT_LT(text.find("part open"), text.find("part holds")) << text;
  }
  EXPECT_THAT(ReportMarkdown(report), HasSubstr("&lt;T> \\| y"));
  EXPECT_THAT(ReportMarkdown(report), Not(HasSubstr("<T>")));
  EXPECT_THAT(ReportHtml(report), HasSubstr("A &lt;report&gt;"));
  EXPECT_THAT(ReportHtml(report), Not(testing::AnyOf(HasSubstr("<T>"), HasSubstr("http:"),
                                                     HasSubstr("https:"), HasSubstr("<script"))));
  const std::string junit = ReportJunit(report);
  EXPECT_THAT(junit, HasSubstr("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""));
  const std::string annotations = ReportAnnotations(report);
  EXPECT_THAT(annotations, HasSubstr("::error title=part FAILS::a | b < c%0Alayer <1>%0Arow\n"));
  EXPECT_THAT(annotations, HasSubstr("::warning title=part open::"));
  EXPECT_THAT(annotations, Not(HasSubstr("part holds")));
}

TEST(ReportTest, ItsJsonFollowsItsSchema) {
  const std::string text = ReportJson(Mixed());
  EXPECT_FALSE(internal::CheckSchema(text, ReportSchema()).has_value());
  json other = json::parse(text);
  other["parts"][1]["verdict"] = "fine";
  const auto finding = internal::CheckSchema(other.dump(), ReportSchema());
  ASSERT_TRUE(finding.has_value());
  EXPECT_THAT(finding->place, HasSubstr("verdict"));
}

TEST(MarkdownCellTest, NothingInItIsMarkup) {
  EXPECT_EQ(MarkdownCell("a|b <T> & *x* _y_ `z` [l]\nm \\"),
            "a\\|b &lt;T> &amp; \\*x\\* \\_y\\_ \\`z\\` \\[l] m \\\\");
}

}  // namespace
}  // namespace lockstep
