#include "ci/lockstep/conform_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/markup.h"
#include "reports/page.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using Verdict = ClauseResult::Verdict;

// Verdicts differ in their mark and their name, so that nobody has to tell colours apart.
struct Look {
  std::string_view css_class;
  std::string_view mark;
};

Look LookOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return {"pass", "✓"};
    case Verdict::kFail:
      return {"fail", "✗"};
    case Verdict::kUnsupported:
      return {"unsupported", "–"};
    case Verdict::kNotRun:
      break;
  }
  return {"not-run", "?"};
}

constexpr std::string_view kStyle = R"(
  main { max-width: 1080px; }
  h2 { font-size: 14px; margin: 28px 0 4px; }
  table { border-collapse: collapse; width: 100%; margin: 18px 0; }
  th { text-align: left; color: var(--quiet); font-weight: 400; }
  th, td { border-bottom: 1px solid var(--line); padding: 5px 12px 5px 0; vertical-align: top; }
  td:first-child { white-space: nowrap; font-weight: 600; }
  .verdict { display: inline-block; white-space: nowrap; border-radius: 4px; padding: 0 8px; }
  .pass { background: var(--good); color: var(--good-ink); }
  .fail { background: var(--bad); color: var(--bad-ink); }
  .unsupported, .not-run { background: var(--absent); color: var(--quiet); }
  pre { background: var(--code); border-radius: 4px; padding: 10px 12px; overflow-x: auto;
        margin: 6px 0; }
)";

// Names of clauses have blanks and commas; ids have none.
std::string IdOf(std::string_view clause) {
  std::string id = "finding-";
  for (const char c : clause) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    id += plain ? c : '-';
  }
  return id;
}

std::string Badge(Verdict verdict) {
  const Look look = LookOf(verdict);
  return fmt::format("<span class=\"verdict {}\">{} {}</span>", look.css_class, look.mark,
                     ConformVerdictName(verdict));
}

std::string Row(const ClauseResult& r) {
  const bool failed = r.verdict == Verdict::kFail;
  std::string clause = Escaped(r.clause);
  if (failed) clause = fmt::format("<a href=\"#{}\">{}</a>", IdOf(r.clause), clause);
  std::string what = Escaped(r.summary);
  if (r.verdict == Verdict::kNotRun && !r.what.empty()) {
    what += fmt::format("<br/><span class=\"quiet\">{}</span>", Escaped(r.what));
  }
  return fmt::format("<tr><td>{}</td><td>L{}</td><td>{}</td><td>{}</td></tr>\n", clause, r.level,
                     Badge(r.verdict), what);
}

std::string Finding(const ClauseResult& r, const ConformText& text) {
  std::string html = fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n", IdOf(r.clause),
                                 Escaped(r.clause), Escaped(r.what));
  if (!r.script.ops.empty()) {
    html += fmt::format("<pre tabindex=\"0\">{}</pre>\n<p class=\"quiet\">{}</p>\n",
                        Escaped(ScriptText(r.script)), Escaped(text.replay));
  }
  return html + "</section>\n";
}

int64_t CountOf(const ConformResult& result, Verdict verdict) {
  return std::ranges::count(result.clauses, verdict, &ClauseResult::verdict);
}

}  // namespace

std::string_view ConformVerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kUnsupported:
      return "unsupported, as declared";
    case Verdict::kNotRun:
      break;
  }
  return "not run";
}

std::string ConformSentence(const ConformResult& result) {
  if (result.conforms) {
    return fmt::format("CONFORMS: {} clauses hold, {} unsupported as declared, {} scripts",
                       CountOf(result, Verdict::kPass), CountOf(result, Verdict::kUnsupported),
                       result.scripts);
  }
  return fmt::format("DOES NOT CONFORM: {} of {} clauses fail, {} scripts",
                     CountOf(result, Verdict::kFail), result.clauses.size(), result.scripts);
}

std::string ConformJson(const ConformResult& result, const ConformText& text) {
  ordered_json json = {{"plugin", text.plugin},
                       {"conforms", result.conforms},
                       {"scripts", result.scripts},
                       {"verdict", ConformSentence(result)},
                       {"command", text.repeat}};
  for (const ClauseResult& r : result.clauses) {
    ordered_json clause = {{"clause", r.clause},
                           {"level", r.level},
                           {"summary", r.summary},
                           {"verdict", ConformVerdictName(r.verdict)}};
    if (!r.what.empty()) clause["what"] = r.what;
    if (!r.script.ops.empty()) clause["script"] = ScriptText(r.script);
    json["clauses"].push_back(std::move(clause));
  }
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string ConformHtml(const ConformResult& result, const ConformText& text) {
  const std::string sentence = ConformSentence(result);
  std::string html =
      fmt::format("<h1>Conformance of {}</h1>\n<p>{}</p>\n<p class=\"quiet\">{}</p>\n",
                  Escaped(text.plugin), sentence, Escaped(text.repeat));
  std::string table =
      "<table>\n<tr><th>clause</th><th>level</th><th>verdict</th><th>what holds</th></tr>\n";
  for (const ClauseResult& r : result.clauses) table += Row(r);
  html += WideRegion("Clauses", table + "</table>\n");
  for (const ClauseResult& r : result.clauses) {
    if (r.verdict == Verdict::kFail) html += Finding(r, text);
  }
  return Page({.title = fmt::format("{}: {}", Escaped(text.plugin), sentence),
               .style = kStyle,
               .body = html});
}

}  // namespace lockstep::cli
