// A report for a terminal, a pull request, another program, and CI services.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/markup.h"
#include "reports/summary.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::vector<const ReportPart*> WorstFirst(const Report& report) {
  std::vector<const ReportPart*> parts;
  for (const ReportPart& part : report.parts) parts.push_back(&part);
  std::ranges::stable_sort(parts, std::greater{}, &ReportPart::verdict);
  return parts;
}

constexpr size_t kComplaintsShown = 20;  // of a part, where people read

}  // namespace

std::string_view ReportVerdictName(ReportVerdict verdict) {
  switch (verdict) {
    case ReportVerdict::kHolds:
      return "holds";
    case ReportVerdict::kOpen:
      return "open";
    case ReportVerdict::kFails:
      break;
  }
  return "FAILS";
}

ReportVerdict Report::verdict() const {
  if (parts.empty()) return ReportVerdict::kOpen;
  return std::ranges::max_element(parts, {}, &ReportPart::verdict)->verdict;
}

std::string Report::Sentence() const {
  const ReportVerdict worst = verdict();
  if (worst == ReportVerdict::kHolds) return fmt::format("HOLDS: {} parts", parts.size());
  std::string names;
  size_t count = 0;
  for (const ReportPart& part : parts) {
    if (part.verdict != worst) continue;
    names += (count++ == 0 ? "" : ", ") + part.title;
  }
  return fmt::format("{}: {} of {} parts{}{}",
                     worst == ReportVerdict::kFails ? "FAILS" : "INCONCLUSIVE", count, parts.size(),
                     names.empty() ? "" : ": ", names);
}

std::string ReportText(const Report& report) {
  std::string text = report.Sentence() + "\n";
  for (const ReportPart* part : WorstFirst(report)) {
    text += fmt::format("\n{} ({}): {}\n", part->title, ReportVerdictName(part->verdict),
                        part->sentence);
    const size_t shown = std::min(part->complaints.size(), kComplaintsShown);
    for (size_t i = 0; i < shown; ++i) text += "  " + part->complaints[i] + "\n";
    if (shown < part->complaints.size()) {
      text += fmt::format("  and {} more\n", part->complaints.size() - shown);
    }
    if (part->verdict != ReportVerdict::kHolds && !part->command.empty()) {
      text += "  repeat: " + part->command + "\n";
    }
  }
  return text;
}

std::string ReportMarkdown(const Report& report) {
  std::string text = fmt::format("**{}**\n", MarkdownCell(report.Sentence()));
  for (const ReportPart* part : WorstFirst(report)) {
    text += fmt::format("\n{} {}: {}\n",
                        part->verdict == ReportVerdict::kHolds   ? "✓"
                        : part->verdict == ReportVerdict::kFails ? "✗"
                                                                 : "?",
                        MarkdownCell(part->title), MarkdownCell(part->sentence));
    const size_t shown = std::min(part->complaints.size(), kComplaintsShown);
    if (shown > 0) text += "\n";
    for (size_t i = 0; i < shown; ++i) {
      text += fmt::format("* {}\n", MarkdownCell(part->complaints[i]));
    }
    if (shown < part->complaints.size()) {
      text += fmt::format("* and {} more\n", part->complaints.size() - shown);
    }
    if (part->table.rows.empty()) continue;
    Table table = part->table;
    for (auto& row : table.rows) std::ranges::transform(row, row.begin(), MarkdownCell);
    text += fmt::format("\n<details>\n<summary>Table, {} rows</summary>\n\n{}\n</details>\n",
                        table.rows.size(), TableMarkdown(table));
  }
  return text;
}

std::string ReportJunit(const Report& report) {
  size_t failures = 0, skipped = 0;
  std::string cases;
  for (const ReportPart& part : report.parts) {
    cases += fmt::format("  <testcase classname=\"lockstep\" name=\"{}\"", Escaped(part.title));
    if (part.verdict == ReportVerdict::kHolds) {
      cases += "/>\n";
      continue;
    }
    const bool fails = part.verdict == ReportVerdict::kFails;
    ++(fails ? failures : skipped);
    std::string lines;
    for (const std::string& complaint : part.complaints) lines += complaint + "\n";
    cases += fmt::format(">\n    <{0} message=\"{1}\">{2}</{0}>\n  </testcase>\n",
                         fails ? "failure" : "skipped", Escaped(part.sentence), Escaped(lines));
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" "
      "failures=\"{}\" errors=\"0\" skipped=\"{}\">\n{}</testsuite>\n",
      Escaped(report.title), report.parts.size(), failures, skipped, cases);
}

std::string ReportAnnotations(const Report& report) {
  std::string lines;
  for (const ReportPart* part : WorstFirst(report)) {
    if (part->verdict == ReportVerdict::kHolds) continue;
    std::string what = part->sentence;
    for (size_t i = 0; i < std::min(part->complaints.size(), kComplaintsShown); ++i) {
      if (part->complaints[i] != part->sentence) what += "\n" + part->complaints[i];
    }
    lines += fmt::format("::{} title={}::{}\n",
                         part->verdict == ReportVerdict::kFails ? "error" : "warning",
                         AnnotationText(part->title, Annotation::kProperty), AnnotationText(what));
  }
  return lines + fmt::format("::notice title={}::{}\n",
                             AnnotationText(report.title, Annotation::kProperty),
                             AnnotationText(report.Sentence()));
}

std::string ReportJson(const Report& report) {
  ordered_json parts = ordered_json::array();
  for (const ReportPart& part : report.parts) {
    parts.push_back({{"title", part.title},
                     {"verdict", ReportVerdictName(part.verdict)},
                     {"sentence", part.sentence},
                     {"complaints", part.complaints},
                     {"header", part.table.header},
                     {"rows", part.table.rows},
                     {"command", part.command},
                     {"source", part.source}});
  }
  const ordered_json out = {
      {"format", "lockstep-report"},   {"version", 1},
      {"title", report.title},         {"verdict", ReportVerdictName(report.verdict())},
      {"sentence", report.Sentence()}, {"parts", parts}};
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string_view ReportSchema() {
  return R"({
 "$schema": "http://json-schema.org/draft-04/schema#",
 "title": "lockstep report",
 "type": "object",
 "required": ["format", "version", "title", "verdict", "sentence", "parts"],
 "additionalProperties": false,
 "properties": {
  "format": {"enum": ["lockstep-report"]},
  "version": {"enum": [1]},
  "title": {"type": "string"},
  "verdict": {"$ref": "#/definitions/verdict"},
  "sentence": {"type": "string"},
  "parts": {
   "type": "array",
   "items": {
    "type": "object",
    "required": ["title", "verdict", "sentence", "complaints", "header", "rows", "command",
                 "source"],
    "additionalProperties": false,
    "properties": {
     "title": {"type": "string", "minLength": 1},
     "verdict": {"$ref": "#/definitions/verdict"},
     "sentence": {"type": "string"},
     "complaints": {"$ref": "#/definitions/texts"},
     "header": {"$ref": "#/definitions/texts"},
     "rows": {"type": "array", "items": {"$ref": "#/definitions/texts"}},
     "command": {"type": "string"},
     "source": {"type": "string"}
    }
   }
  }
 },
 "definitions": {
  "verdict": {"enum": ["holds", "open", "FAILS"]},
  "texts": {"type": "array", "items": {"type": "string"}}
 }
}
)";
}

}  // namespace lockstep
