#include "ci/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/markup.h"
#include "reports/table.h"

namespace lockstep {
namespace {

bool IsGreen(const PartResult& part) {
  return part.verdict == PartVerdict::kHolds || part.verdict == PartVerdict::kUnaffected;
}

// Text of XML: what is no character there (https://www.w3.org/TR/xml/#charsets) and what is no
// ASCII becomes a question mark.
std::string XmlText(std::string text) {
  for (char& c : text) {
    if ((c < ' ' || c > '~') && c != '\n' && c != '\t') c = '?';
  }
  return Escaped(text);
}

// One line of Markdown's tables and of text beside `code`.
std::string MarkdownText(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (std::string_view("\\`*_{}[]<>|#").find(c) != std::string_view::npos) line += '\\';
    line += c == '\n' || c == '\r' ? ' ' : c;
  }
  return line;
}

Table TableOf(const PlanResult& result) {
  Table table{.header = {"part", "verdict", "seconds", "what", "why it ran"}};
  for (const PartResult& part : result.parts) {
    table.rows.push_back({part.name, std::string(PartVerdictName(part.verdict)),
                          part.log.empty() ? "" : fmt::format("{:.1f}", part.seconds), part.what,
                          part.verdict == PartVerdict::kUnaffected ? "" : part.reason});
  }
  return table;
}

std::string_view VerdictWord(const PlanResult& result) {
  switch (result.verdict()) {
    case PartVerdict::kHolds:
      return "HOLDS";
    case PartVerdict::kFailed:
      return "FAILED";
    default:
      return "INCONCLUSIVE";
  }
}

}  // namespace

std::string VerdictLine(const PlanRun& run, const PlanResult& result) {
  const auto count = [&](PartVerdict v) {
    return std::ranges::count(result.parts, v, &PartResult::verdict);
  };
  std::string parts;
  for (const PartVerdict verdict :
       {PartVerdict::kFailed, PartVerdict::kInconclusive, PartVerdict::kNotRun, PartVerdict::kHolds,
        PartVerdict::kUnaffected}) {
    if (count(verdict) == 0) continue;
    if (!parts.empty()) parts += ", ";
    std::string name(PartVerdictName(verdict));
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    parts += fmt::format("{} {}", count(verdict), name);
  }
  return fmt::format("{}: {} of tier {} ({:.0f} s)", VerdictWord(result),
                     parts.empty() ? "no part" : parts, run.tier, result.seconds);
}

std::string PlanText(const PlanRun& run, const PlanResult& result) {
  std::string text = VerdictLine(run, result) + "\n";
  for (const PartResult& part : result.parts) {
    if (IsGreen(part)) continue;
    text += fmt::format("\n{} {}: {}\n", part.name, PartVerdictName(part.verdict), part.what);
    if (!part.command.empty()) text += fmt::format("  repeat  {}\n", part.command);
    if (!part.log.empty()) text += fmt::format("  log     {}\n", part.log);
  }
  text += fmt::format("\n{:<20} {:<12} {:>7}  {}\n", "part", "verdict", "seconds", "what");
  for (const std::vector<std::string>& row : TableOf(result).rows) {
    const std::string why = row[4].empty() ? "" : fmt::format(" [{}]", row[4]);
    text += fmt::format("{:<20} {:<12} {:>7}  {}{}\n", row[0], row[1], row[2], row[3], why);
  }
  return text + fmt::format("\nscope: {}\nseed: {}\nrepeat: {}\n", run.scope, run.seed, run.repeat);
}

std::string PlanMarkdown(const PlanRun& run, const PlanResult& result) {
  std::string text = fmt::format("**{}**\n", MarkdownText(VerdictLine(run, result)));
  for (const PartResult& part : result.parts) {
    if (IsGreen(part)) continue;
    text += fmt::format("\n**{}** {}: {}\n", MarkdownText(part.name), PartVerdictName(part.verdict),
                        MarkdownText(part.what));
    if (!part.command.empty()) text += fmt::format("\n```sh\n{}\n```\n", part.command);
  }
  Table table = TableOf(result);
  for (auto& row : table.rows) {
    for (std::string& cell : row) cell = MarkdownText(cell);
  }
  return text + fmt::format("\n{}\nScope: {}. Seed `{}`.\n\n```sh\n{}\n```\n", TableMarkdown(table),
                            MarkdownText(run.scope), run.seed, run.repeat);
}

std::string PlanJson(const PlanRun& run, const PlanResult& result) {
  auto parts = nlohmann::ordered_json::array();
  for (const PartResult& part : result.parts) {
    parts.push_back({{"name", part.name},
                     {"verdict", PartVerdictName(part.verdict)},
                     {"what", part.what},
                     {"reason", part.reason},
                     {"seconds", part.seconds},
                     {"command", part.command},
                     {"log", part.log}});
  }
  const nlohmann::ordered_json object = {{"verdict", VerdictWord(result)},
                                         {"tier", run.tier},
                                         {"seed", run.seed},
                                         {"scope", run.scope},
                                         {"seconds", result.seconds},
                                         {"repeat", run.repeat},
                                         {"parts", parts}};
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string PlanJunit(const PlanRun& run, const PlanResult& result) {
  int failures = 0;
  int errors = 0;
  int skipped = 0;
  std::string cases;
  for (const PartResult& part : result.parts) {
    cases += fmt::format("  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"",
                         XmlText("lockstep." + run.tier), XmlText(part.name), part.seconds);
    const std::string message = fmt::format(" message=\"{}\"", XmlText(part.what));
    switch (part.verdict) {
      case PartVerdict::kHolds:
        cases += "/>\n";
        continue;
      case PartVerdict::kUnaffected:
        ++skipped;
        cases += fmt::format("><skipped{}/></testcase>\n", message);
        continue;
      case PartVerdict::kFailed:
        ++failures;
        cases += fmt::format("><failure{}>{}</failure></testcase>\n", message,
                             XmlText("repeat: " + part.command));
        continue;
      case PartVerdict::kInconclusive:
      case PartVerdict::kNotRun:
        ++errors;
        cases += fmt::format("><error{}>{}</error></testcase>\n", message,
                             XmlText("repeat: " + part.command));
        continue;
    }
  }
  if (result.parts.empty()) {  // an empty suite counts as passed everywhere
    ++errors;
    cases = fmt::format(
        "  <testcase classname=\"{0}\" name=\"{0}\"><error message=\"no part\"/>"
        "</testcase>\n",
        XmlText("lockstep." + run.tier));
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"lockstep gate, tier {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
      "skipped=\"{}\" time=\"{:.3f}\">\n{}</testsuite>\n",
      XmlText(run.tier), std::max<size_t>(result.parts.size(), 1), failures, errors, skipped,
      result.seconds, cases);
}

std::string PlanAnnotations(const PlanResult& result) {
  std::string lines;
  for (const PartResult& part : result.parts) {
    if (IsGreen(part)) continue;
    lines +=
        fmt::format("::error title={}::{}\n",
                    AnnotationText("lockstep gate: " + part.name, Annotation::kProperty),
                    AnnotationText(fmt::format("{}: {}\nrepeat: {}", PartVerdictName(part.verdict),
                                               part.what, part.command)));
  }
  return lines;
}

}  // namespace lockstep
