// The page of `lockstep golden explain`: the map, both values and the cause, nothing from
// elsewhere, and whatever a case is called as text.
#include "ci/lockstep/golden_explain_page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Explanation Made() {
  Explanation e;
  e.name = "<b>case</b>";
  e.rows = "f32";
  e.cache = "simple";
  e.changes.push_back(
      {.place = {.op = 1, .step = 1, .sequence = 0, .layer = 1, .name = "key_rope"}});
  e.place = e.changes[0].place;
  e.operation = "decode n=1";
  e.what = "stage";
  e.positions = {3};
  e.old_side = OldSide::kApproximate;
  e.old_from = "the reference";
  e.tried = {{.name = "cache paged/4", .agrees = false, .differs = "op1 & here"}};
  e.values = CompareValues(std::vector{1.0f, 2.0f}, std::vector{1.0f, 3.0f}, 2);
  e.elements = {{.position = 3, .row = 0, .element = 1, .before = 2.0f, .now = 3.0f}};
  e.cause = {Cause::kWrongPosition, "2 of 2 heads", 1};
  e.downstream = {
      {.op = 1, .step = 1, .sequence = 0, .before = "7 1", .now = "1 7", .argmax = true}};
  e.steps = 2;
  e.step_names = {"op 0, sequence 0, at=0..2", "op 1, sequence 0, at=3"};
  for (int32_t step = 0; step < 2; ++step) {
    for (const char* stage : {"key", "key_rope"}) {
      e.marks.push_back({.step = step, .layer = 1, .stage = stage});
    }
  }
  e.marks.back().changed = true;
  return e;
}

TEST(GoldenExplainPageTest, ShowsTheMapTheValuesAndTheCause) {
  const std::vector<Explanation> explanations = {Made()};
  const std::string html = ExplanationsHtml(explanations, "explain & repeat");
  EXPECT_THAT(html, HasSubstr("1 of 1 golden files differ"));
  EXPECT_THAT(html, HasSubstr("<span class=\"cause\">wrong position</span> 2 of 2 heads"));
  EXPECT_THAT(html, HasSubstr("operation 1 (decode n=1), step 1, sequence 0, layer 1, key_rope"));
  EXPECT_THAT(html, HasSubstr("<td class=\"other first\">✗ first</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"same\">✓</td>"));
  EXPECT_THAT(html, HasSubstr("0x40400000 3"));
  EXPECT_THAT(html, HasSubstr("approximate"));
  EXPECT_THAT(html, HasSubstr("another likeliest token"));
  EXPECT_THAT(html, HasSubstr("explain &amp; repeat"));
}

TEST(GoldenExplainPageTest, EscapesNamesAndNeedsNothingFromElsewhere) {
  const std::vector<Explanation> explanations = {Made()};
  const std::string html = ExplanationsHtml(explanations, "repeat");
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;case&lt;/b&gt;"));
  EXPECT_THAT(html, HasSubstr("op1 &amp; here"));
  for (const char* reference : {"http", "src=", "url(", "<script", "@import", "<link", "<b>"}) {
    EXPECT_THAT(html, Not(HasSubstr(reference)));
  }
}

TEST(GoldenExplainPageTest, JsonSaysTheSame) {
  std::vector<Explanation> explanations = {Made(), Explanation{}};
  explanations[1].name = "other";
  const auto json = nlohmann::json::parse(ExplanationsJson(explanations, "repeat"));
  EXPECT_EQ(json["holds"], false);
  const auto& e = json["explanations"][0];
  EXPECT_EQ(e["first"]["stage"], "key_rope");
  EXPECT_EQ(e["first"]["layer"], 1);
  EXPECT_EQ(e["cause"]["class"], "wrong position");
  EXPECT_EQ(e["old_side"]["known"], "approximate");
  EXPECT_EQ(e["values"]["first_of_rows"][0]["now"]["hex"], "40400000");
  EXPECT_EQ(e["downstream"][0]["argmax_changes"], true);
  EXPECT_EQ(json["explanations"][1]["holds"], true);
}

}  // namespace
}  // namespace lockstep::cli
