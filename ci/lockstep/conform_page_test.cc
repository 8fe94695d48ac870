// The page of `lockstep conform`: every clause, every verdict in words, nothing from elsewhere, and
// whatever a plug-in calls itself as text.
#include "ci/lockstep/conform_page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/conform_clauses.h"
#include "reports/markup.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Verdict = ClauseResult::Verdict;

constexpr const char* kName = "<b>co</b> & \"friends\"";

ConformResult Result() {
  ConformResult result;
  for (const ConformClause& clause : ConformClauses()) {
    result.clauses.push_back(
        {std::string(clause.clause), clause.level, std::string(clause.summary), Verdict::kPass});
  }
  result.clauses[0].verdict = Verdict::kUnsupported;
  result.clauses[1].verdict = Verdict::kNotRun;
  result.clauses[1].what = "hangs <often>";
  ClauseResult& failed = result.clauses[14];  // "C2, past max_length"
  failed.verdict = Verdict::kFail;
  failed.what = "subject: <done>, model: \"refused\"";
  failed.script = ParseScript("cache p<1> layers=1 heads=1 dim=1 max=2\ncommit at=2\n", "test");
  result.scripts = 17;
  return result;
}

const ConformText kText = {.plugin = kName, .replay = "replay & FILE", .repeat = "conform <lib>"};

// Elements are closed in order, attributes are quoted, and every & begins an entity: enough of XML
// for what the page consists of.
std::string WellFormednessFault(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != html.npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == html.npos) return "a tag does not end";
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.starts_with('!') || tag.ends_with('/')) continue;
    const std::string name = tag.substr(tag[0] == '/', tag.find(' ') - (tag[0] == '/'));
    if (tag[0] != '/') {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return fmt::format("</{}> closes nothing", name);
    } else {
      open.pop_back();
    }
  }
  for (size_t at = html.find('&'); at != html.npos; at = html.find('&', at + 1)) {
    if (html.find(';', at) > at + 6) return "a bare &";
  }
  return open.empty() ? "" : fmt::format("{} is open", open.back());
}

TEST(ConformPageTest, IsWellFormed) {
  EXPECT_EQ(WellFormednessFault(ConformHtml(Result(), kText)), "");
  EXPECT_NE(WellFormednessFault("<p><b></p></b>"), "") << "the check itself";
  EXPECT_NE(WellFormednessFault("<p>a & b</p>"), "");
}

TEST(ConformPageTest, ShowsEveryClauseAndEveryVerdictInWords) {
  const std::string html = ConformHtml(Result(), kText);
  for (const ClauseResult& r : Result().clauses) {
    EXPECT_THAT(html, HasSubstr(fmt::format(">{}<", r.clause))) << r.clause;
    EXPECT_THAT(html, HasSubstr(Escaped(r.summary)));
  }
  for (const Verdict verdict :
       {Verdict::kPass, Verdict::kFail, Verdict::kUnsupported, Verdict::kNotRun}) {
    EXPECT_THAT(html, HasSubstr(fmt::format(" {}</span>", ConformVerdictName(verdict))));
  }
  EXPECT_THAT(html, HasSubstr("commit at=2"));
  EXPECT_THAT(html, HasSubstr("replay &amp; FILE"));
}

TEST(ConformPageTest, EscapesWhateverAPluginSays) {
  const std::string html = ConformHtml(Result(), kText);
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;co&lt;/b&gt; &amp; &quot;friends&quot;"));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, HasSubstr("hangs &lt;often&gt;"));
  EXPECT_THAT(html, HasSubstr("&lt;done&gt;"));
  EXPECT_THAT(html, HasSubstr("cache p&lt;1&gt;"));
}

TEST(ConformPageTest, NeedsNothingFromElsewhere) {
  const std::string html = ConformHtml(Result(), kText);
  for (const char* reference : {"http", "src=", "url(", "<script", "@import", "<link"}) {
    EXPECT_THAT(html, Not(HasSubstr(reference)));
  }
}

TEST(ConformPageTest, JsonSaysTheSame) {
  const auto json = nlohmann::json::parse(ConformJson(Result(), kText));
  EXPECT_EQ(json["plugin"], kName);
  EXPECT_EQ(json["conforms"], false);
  EXPECT_EQ(json["verdict"], "DOES NOT CONFORM: 1 of 27 clauses fail, 17 scripts");
  ASSERT_EQ(json["clauses"].size(), 27u);
  EXPECT_EQ(json["clauses"][14]["verdict"], "FAIL");
  EXPECT_EQ(json["clauses"][14]["script"],
            "cache p<1> layers=1 heads=1 dim=1 max=2\ncommit at=2\n");
}

}  // namespace
}  // namespace lockstep::cli
