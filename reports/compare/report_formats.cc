// The formats that other programs read.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "caches/error.h"
#include "caches/file_io.h"
#include "reports/compare_report.h"
#include "reports/markup.h"
#include "reports/results/json_schema.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string_view OutcomeName(Comparison::Outcome outcome) {
  switch (outcome) {
    case Comparison::Outcome::kHolds:
      return "holds";
    case Comparison::Outcome::kRegression:
      return "regression";
    case Comparison::Outcome::kInconclusive:
      break;
  }
  return "inconclusive";
}

Table CellsOf(Table table) {
  for (auto& row : table.rows) {
    for (std::string& cell : row) cell = MarkdownCell(cell);
  }
  return table;
}

ordered_json BenchJson(const BenchComparison& c) {
  ordered_json out = {{"name", c.name},
                      {"verdict", BenchVerdictName(c.verdict)},
                      {"text", VerdictText(c)},
                      {"regressed", c.regressed()},
                      {"unit", c.unit},
                      {"baseline", c.baseline},
                      {"subject", c.subject},
                      {"by_limit", c.by_limit},
                      {"ratio", c.ratio},
                      {"low", c.low},
                      {"high", c.high},
                      {"p_value", c.p_value},
                      {"within", c.within},
                      {"floor", c.floor},
                      {"detectable", c.detectable},
                      {"noise", c.noise},
                      {"rounds", c.rounds},
                      {"rounds_left_out", c.rounds_left},
                      {"bits_changed", c.bits_changed}};
  if (c.rounds_needed) out["rounds_needed"] = *c.rounds_needed;
  out["counters"] = ordered_json::array();
  for (const CounterChange& change : c.counters) {
    out["counters"].push_back({{"name", change.name},
                               {"baseline", change.baseline},
                               {"subject", change.subject},
                               {"worse", change.worse}});
  }
  return out;
}

ordered_json OneSidedJson(const std::vector<OneSided>& ones) {
  ordered_json out = ordered_json::array();
  for (const OneSided& one : ones) {
    ordered_json each = {{"name", one.Name()}, {"benchmark", one.benchmark}, {"text", one.text}};
    if (!one.part.empty()) each["part"] = one.part;
    out.push_back(std::move(each));
  }
  return out;
}

// Each of what one side alone has, with what is said of it.
std::vector<std::pair<std::string, std::string>> OneSidedLines(const Comparison& comparison) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const OneSided& one : comparison.gone) lines.emplace_back(one.Name(), GoneText(one));
  for (const OneSided& one : comparison.added) lines.emplace_back(one.Name(), NewText(one));
  return lines;
}

}  // namespace

std::string ComparisonMarkdown(const Comparison& comparison, const std::string& command) {
  const Table all = CellsOf(ComparisonTable(comparison));
  Table told{.header = all.header};
  const auto order = ByConcern(comparison);
  for (size_t i = 0; i < order.size(); ++i) {
    const bool same = !order[i]->regressed() && order[i]->verdict == BenchVerdict::kSame;
    if (!same) told.rows.push_back(all.rows[i]);
  }
  std::string text = fmt::format("**{}**\n\n", ComparisonSentence(comparison));
  if (!told.rows.empty()) text += TableMarkdown(told) + "\n";
  const std::vector<std::string> alone = OneSidedTexts(comparison);
  for (const std::string& line : alone) text += fmt::format("* {}\n", MarkdownCell(line));
  if (!alone.empty()) text += "\n";
  text +=
      fmt::format("<details>\n<summary>All {} benchmarks, and how they were measured</summary>\n\n",
                  all.rows.size());
  text += TableMarkdown(all) + "\n";
  for (const std::string& note : ComparisonNotes(comparison)) text += note + "\n";
  return text + fmt::format("\n`{}`\n\n</details>\n", command);
}

std::string ComparisonJunit(const Comparison& comparison) {
  size_t failures = 0, skipped = 0;
  std::string cases;
  for (const BenchComparison& c : comparison.benchmarks) {
    const bool open = c.verdict == BenchVerdict::kInconclusive && !comparison.identical;
    cases += fmt::format("  <testcase classname=\"bench\" name=\"{}\"", Escaped(c.name));
    if (c.regressed()) {
      ++failures;
      cases += fmt::format(">\n    <failure message=\"{}\"/>\n  </testcase>\n",
                           Escaped(ReproachText(c)));
    } else if (open) {
      ++skipped;
      cases +=
          fmt::format(">\n    <skipped message=\"{}\"/>\n  </testcase>\n", Escaped(VerdictText(c)));
    } else {
      cases += "/>\n";
    }
  }
  const auto alone = OneSidedLines(comparison);
  skipped += alone.size();
  for (const auto& [name, text] : alone) {
    cases += fmt::format(
        "  <testcase classname=\"bench\" name=\"{}\">\n    <skipped message=\"{}\"/>\n"
        "  </testcase>\n",
        Escaped(name), Escaped(text));
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"lockstep bench compare\" "
      "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n{}</testsuite>\n",
      comparison.benchmarks.size() + alone.size(), failures, skipped, cases);
}

std::string ComparisonAnnotations(const Comparison& comparison) {
  std::string lines;
  for (const BenchComparison* c : ByConcern(comparison)) {
    const bool open = c->verdict == BenchVerdict::kInconclusive && !comparison.identical;
    if (!c->regressed() && !open) continue;
    lines += fmt::format("::{} title={}::{}\n", c->regressed() ? "error" : "warning",
                         AnnotationText(c->name, Annotation::kProperty),
                         AnnotationText(ReproachText(*c)));
  }
  for (const auto& [name, text] : OneSidedLines(comparison)) {
    lines += fmt::format("::notice title={}::{}\n", AnnotationText(name, Annotation::kProperty),
                         AnnotationText(text));
  }
  return lines + fmt::format("::notice title=lockstep bench compare::{}\n",
                             AnnotationText(ComparisonSentence(comparison)));
}

std::string ComparisonJson(const Comparison& comparison, const std::string& command) {
  ordered_json out = {{"format", "lockstep-bench-comparison"},
                      {"version", 1},
                      {"outcome", OutcomeName(comparison.outcome())},
                      {"sentence", ComparisonSentence(comparison)},
                      {"command", command},
                      {"identical", comparison.identical},
                      {"interleaved", comparison.interleaved},
                      {"alpha", comparison.options.alpha},
                      {"seed", comparison.options.seed}};
  out["benchmarks"] = ordered_json::array();
  for (const BenchComparison& c : comparison.benchmarks) {
    out["benchmarks"].push_back(BenchJson(c));
  }
  out["new"] = OneSidedJson(comparison.added);
  out["gone"] = OneSidedJson(comparison.gone);
  out["baseline"] = ordered_json::parse(RunJson(comparison.baseline));
  out["subject"] = ordered_json::parse(RunJson(comparison.subject));
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::map<std::string, double> ReadNoiseFloors(const std::string& path) {
  const std::string text = ReadWholeTextFile(path);
  const json parsed = json::parse(text, nullptr, false);
  const auto fail = [&](const std::string& what) {
    throw Error({path, what, "write it by `lockstep bench compare --aa A A --json-file FILE`"});
  };
  if (!parsed.is_object() || parsed.value("format", json()) != "lockstep-bench-comparison") {
    fail("is no comparison");
  }
  if (const auto finding = internal::CheckSchema(text, ComparisonSchema())) {
    fail(fmt::format("is no comparison of this version: '{}' {}", finding->place, finding->what));
  }
  if (parsed["identical"] != true) fail("compares two builds that differ");
  Comparison aa;
  aa.identical = true;
  for (const json& c : parsed["benchmarks"]) {
    BenchComparison read{.name = c["name"], .unit = {}};
    read.low = c["low"];
    read.high = c["high"];
    read.rounds = c["rounds"];
    if (!(read.low > 0)) continue;  // never measured
    aa.benchmarks.push_back(std::move(read));
  }
  return NoiseFloors(aa);
}

}  // namespace lockstep
