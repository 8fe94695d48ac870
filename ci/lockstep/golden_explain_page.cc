#include "ci/lockstep/golden_explain_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "caches/digest.h"
#include "oracle/difference.h"
#include "reports/markup.h"
#include "reports/page.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kElementsShown = 24;

// ---- JSON -------------------------------------------------------------------------------

ordered_json ValueJson(float value) {
  return {{"hex", fmt::format("{:08x}", CanonicalBits(value))},
          {"decimal", fmt::format("{}", value)}};
}

ordered_json PlaceJson(const Explanation& e) {
  const Fact& place = e.place;
  ordered_json json = {{"sentence", PlaceText(e)}, {"fact", place.name}};
  if (place.op >= 0) json["op"] = place.op;
  if (place.step >= 0) json["step"] = place.step;
  if (place.sequence >= 0) json["sequence"] = place.sequence;
  if (place.layer >= 0) json["layer"] = place.layer;
  if (e.what == "stage") json["stage"] = place.base_name();
  json["kind"] = e.what;
  if (!e.positions.empty()) json["positions"] = e.positions;
  if (!e.side.empty()) json["rows"] = e.side;
  return json;
}

ordered_json ValuesJson(const Explanation& e) {
  ordered_json json = {{"elements", e.values.elements},
                       {"differing", e.values.differing},
                       {"rows_differing", e.values.rows.size()}};
  for (size_t i = 0; i < std::min(kElementsShown, e.elements.size()); ++i) {
    const ElementPair& pair = e.elements[i];
    const auto ulps = UlpDistance(pair.before, pair.now);
    json["first_of_rows"].push_back({{"position", pair.position},
                                     {"row", pair.row},
                                     {"element", pair.element},
                                     {"before", ValueJson(pair.before)},
                                     {"now", ValueJson(pair.now)},
                                     {"ulps", ulps ? ordered_json(*ulps) : ordered_json()}});
  }
  ordered_json histogram = ordered_json::object();
  for (size_t bucket = 0; bucket < UlpHistogram::kBuckets; ++bucket) {
    if (e.values.ulps.counts[bucket] == 0) continue;
    histogram[UlpHistogram::BucketName(bucket)] = e.values.ulps.counts[bucket];
  }
  if (e.values.ulps.nan > 0) histogram["nan"] = e.values.ulps.nan;
  json["ulps"] = std::move(histogram);
  return json;
}

ordered_json ExplanationJson(const Explanation& e) {
  ordered_json json = {{"case", e.name},
                       {"rows", e.rows},
                       {"cache", e.cache},
                       {"holds", e.changes.empty()},
                       {"changes", e.changes.size()}};
  if (e.changes.empty()) return json;
  json["first"] = PlaceJson(e);
  json["cause"] = {{"class", CauseName(e.cause.cause)},
                   {"evidence", e.cause.evidence},
                   {"share", e.cause.share}};
  json["old_side"] = {{"known", OldSideName(e.old_side)}, {"from", e.old_from}};
  for (const TriedWay& tried : e.tried) {
    ordered_json way = {{"way", tried.name}, {"agrees", tried.agrees}};
    if (!tried.agrees) way["differs_at"] = tried.differs;
    json["old_side"]["tried"].push_back(std::move(way));
  }
  if (e.values.elements > 0) json["values"] = ValuesJson(e);
  json["downstream"] = ordered_json::array();
  for (const TopChange& top : e.downstream) {
    json["downstream"].push_back({{"op", top.op},
                                  {"step", top.step},
                                  {"sequence", top.sequence},
                                  {"before", top.before},
                                  {"now", top.now},
                                  {"argmax_changes", top.argmax}});
  }
  return json;
}

// ---- HTML -------------------------------------------------------------------------------

constexpr std::string_view kStyle = R"(
  h2 { font-size: 16px; margin: 36px 0 4px; border-top: 2px solid var(--line); padding-top: 18px; }
  h3 { font-size: 13px; margin: 20px 0 4px; color: var(--quiet); font-weight: 400; }
  .cause { display: inline-block; border-radius: 4px; padding: 0 8px; font-weight: 600;
           background: var(--bad); color: var(--bad-ink); }
  table { border-collapse: collapse; margin: 8px 0; }
  th { text-align: left; color: var(--quiet); font-weight: 400; white-space: nowrap; }
  th, td { border-bottom: 1px solid var(--line); padding: 3px 12px 3px 0; vertical-align: top; }
  table.map { border-collapse: separate; border-spacing: 2px; }
  table.map th, table.map td { border: 0; padding: 2px 6px; }
  table.map td { border-radius: 3px; text-align: center; white-space: nowrap; }
  td.same { background: var(--good); color: var(--good-ink); }
  td.other { background: var(--bad); color: var(--bad-ink); }
  td.first { outline: 2px solid var(--bad-ink); font-weight: 600; }
  .bar { display: inline-block; height: 9px; background: var(--quiet); }
)";

std::string LayerName(int32_t layer) {
  return layer < 0 ? "no layer" : fmt::format("layer {}", layer);
}

// The stages of one step by layer: the map.
std::string StageMap(const Explanation& e, int32_t step) {
  std::vector<std::string> stages;  // in order of computation
  std::set<int32_t> layers;
  for (const StageMark& mark : e.marks) {
    if (mark.step != step || mark.layer < 0) continue;
    layers.insert(mark.layer);
    if (std::ranges::find(stages, mark.stage) == stages.end()) stages.push_back(mark.stage);
  }
  const auto cell = [&](const StageMark& mark) {
    const bool first =
        e.place.step == mark.step && e.place.layer == mark.layer && e.place.name == mark.stage;
    return fmt::format("<td class=\"{}{}\">{}</td>", mark.changed ? "other" : "same",
                       first ? " first" : "",
                       first          ? "✗ first"
                       : mark.changed ? "✗"
                                      : "✓");
  };
  std::string html = "<table class=\"map\">\n<tr><th></th>";
  for (const std::string& stage : stages) html += fmt::format("<th>{}</th>", Escaped(stage));
  html += "</tr>\n";
  for (int32_t layer : layers) {
    html += fmt::format("<tr><th>{}</th>", LayerName(layer));
    for (const StageMark& mark : e.marks) {
      if (mark.step == step && mark.layer == layer) html += cell(mark);
    }
    html += "</tr>\n";
  }
  html += "</table>\n<table class=\"map\">\n<tr>";
  for (const StageMark& mark : e.marks) {
    if (mark.step == step && mark.layer < 0)
      html += fmt::format("<th>{}</th>{}", mark.stage, cell(mark));
  }
  return WideRegion("Stages by layer", html + "</tr>\n</table>\n");
}

// Every step, by layer: the first stage there that differs.
std::string StepMap(const Explanation& e) {
  std::set<int32_t> layers;
  for (const StageMark& mark : e.marks) {
    if (mark.layer >= 0) layers.insert(mark.layer);
  }
  std::string html = "<table class=\"map\">\n<tr><th>step</th><th></th>";
  for (int32_t layer : layers) html += fmt::format("<th>{}</th>", LayerName(layer));
  html += "<th>logits</th></tr>\n";
  for (int32_t step = 0; step < e.steps; ++step) {
    html += fmt::format("<tr><th>{}</th><th>{}</th>", step,
                        Escaped(e.step_names[static_cast<size_t>(step)]));
    std::vector<int32_t> columns(layers.begin(), layers.end());
    columns.push_back(-1);
    for (int32_t layer : columns) {
      const auto mark = std::ranges::find_if(e.marks, [&](const StageMark& m) {
        return m.step == step && m.layer == layer && m.changed && m.stage != "embedding";
      });
      const bool changed = mark != e.marks.end();
      const bool first = changed && e.place.step == step && e.place.layer == layer;
      html += fmt::format("<td class=\"{}{}\">{}</td>", changed ? "other" : "same",
                          first ? " first" : "", changed ? "✗ " + mark->stage : "✓");
    }
    html += "</tr>\n";
  }
  return WideRegion("First stages that differ", html + "</table>\n");
}

std::string ElementTable(const Explanation& e) {
  const bool about = e.old_side == OldSide::kApproximate;
  std::string html = fmt::format(
      "<table>\n<tr><th>position</th><th>element</th><th>{}</th><th>now</th><th>ulps</th></tr>\n",
      about ? "should be, about" : "in the golden");
  for (size_t i = 0; i < std::min(kElementsShown, e.elements.size()); ++i) {
    const ElementPair& pair = e.elements[i];
    const auto ulps = UlpDistance(pair.before, pair.now);
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        pair.position, pair.element, ElementText(pair.before),
                        ElementText(pair.now), ulps ? fmt::format("{}", *ulps) : "NaN");
  }
  return fmt::format("<p>{} of {} elements in {} rows differ.{}</p>\n{}", e.values.differing,
                     e.values.elements, e.values.rows.size(),
                     about ? " The values that should be there are approximate." : "",
                     WideRegion("Elements that differ", html + "</table>\n"));
}

std::string Histogram(const UlpHistogram& ulps) {
  int64_t most = ulps.nan;
  for (int64_t count : ulps.counts) most = std::max(most, count);
  const auto row = [&](const std::string& name, int64_t count) {
    return fmt::format(
        "<tr><td>{}</td><td>{}</td><td><span class=\"bar\" "
        "style=\"width: {}px\"></span></td></tr>\n",
        name, count, 1 + 240 * count / std::max<int64_t>(1, most));
  };
  std::string html = "<table>\n<tr><th>ulps apart</th><th>elements</th><th></th></tr>\n";
  for (size_t bucket = 0; bucket < UlpHistogram::kBuckets; ++bucket) {
    if (ulps.counts[bucket] > 0) html += row(UlpHistogram::BucketName(bucket), ulps.counts[bucket]);
  }
  if (ulps.nan > 0) html += row("NaN", ulps.nan);
  return WideRegion("Elements by how far they are apart", html + "</table>\n");
}

std::string OldSideHtml(const Explanation& e) {
  std::string html = fmt::format("<p>{}{}{}</p>\n", OldSideName(e.old_side),
                                 e.old_from.empty() ? "" : ", by ", Escaped(e.old_from));
  for (const TriedWay& tried : e.tried) {
    html += fmt::format(
        "<p class=\"quiet\">{} {}</p>\n", Escaped(tried.name),
        tried.agrees ? "agrees with the golden" : "differs from it at " + Escaped(tried.differs));
  }
  return html;
}

std::string Downstream(const Explanation& e) {
  if (e.downstream.empty()) return "<p>No top-5 token changes at any step.</p>\n";
  std::string html =
      "<table>\n<tr><th>step</th><th>sequence</th>"
      "<th>top 5 in the golden</th><th>now</th><th></th></tr>\n";
  for (const TopChange& top : e.downstream) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        top.step, top.sequence, Escaped(top.before), Escaped(top.now),
                        top.argmax ? "✗ another likeliest token" : "");
  }
  return WideRegion("Likeliest tokens", html + "</table>\n");
}

std::string Section(const Explanation& e) {
  std::string html =
      fmt::format("<section>\n<h2>{}/{}.golden</h2>\n", Escaped(e.name), Escaped(e.rows));
  if (e.changes.empty()) return html + "<p>✓ It holds.</p>\n</section>\n";
  html += fmt::format(
      "<p><span class=\"cause\">{}</span> {}</p>\n<p>{}{}</p>\n"
      "<p class=\"quiet\">recorded now on cache {}; {} facts differ</p>\n",
      CauseName(e.cause.cause), Escaped(e.cause.evidence), Escaped(PlaceText(e)),
      e.side.empty() ? "" : "; " + Escaped(e.side), Escaped(e.cache), e.changes.size());
  if (e.place.step >= 0) {
    html += fmt::format("<h3>Stages of step {}</h3>\n{}", e.place.step, StageMap(e, e.place.step));
  }
  html += "<h3>First stage that differs, by step and layer</h3>\n" + StepMap(e);
  if (e.values.elements > 0) {
    html += "<h3>Values</h3>\n" + ElementTable(e) + Histogram(e.values.ulps);
  }
  html += "<h3>Where the golden's values come from</h3>\n" + OldSideHtml(e);
  return html + "<h3>Downstream</h3>\n" + Downstream(e) + "</section>\n";
}

}  // namespace

std::string ExplanationsJson(std::span<const Explanation> explanations, const std::string& repeat) {
  ordered_json json = {
      {"holds", true}, {"command", repeat}, {"explanations", ordered_json::array()}};
  for (const Explanation& e : explanations) {
    if (!e.changes.empty()) json["holds"] = false;
    json["explanations"].push_back(ExplanationJson(e));
  }
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string ExplanationsHtml(std::span<const Explanation> explanations, const std::string& repeat) {
  const int64_t differ =
      std::ranges::count_if(explanations, [](const Explanation& e) { return !e.changes.empty(); });
  const std::string sentence =
      fmt::format("{} of {} golden files differ", differ, explanations.size());
  std::string html =
      fmt::format("<h1>{}</h1>\n<p class=\"quiet\">{}</p>\n", sentence, Escaped(repeat));
  for (const Explanation& e : explanations) html += Section(e);
  return Page({.title = sentence, .style = kStyle, .body = html});
}

}  // namespace lockstep::cli
