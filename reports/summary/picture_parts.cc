// Parts that are pictures in the first place: where golden files stopped to hold, and what a cache
// script does.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>

#include "caches/error.h"
#include "caches/registry.h"
#include "engine/trace.h"
#include "properties/isolated_run.h"
#include "properties/script.h"
#include "properties/script_runner.h"
#include "reports/markup.h"
#include "reports/summary/parts.h"

namespace lockstep::internal {
namespace {

using nlohmann::json;

// Stages downwards in the order of a step, layers to the right; a number says how many of the
// explained files first differ there.
ReportPicture PlaceMap(const std::map<std::pair<std::string, int>, int>& counts) {
  constexpr double kNames = 150, kBox = 26;
  std::vector<std::string> stages;
  const auto add = [&](const std::string& stage) {
    if (std::ranges::find(stages, stage) == stages.end()) stages.push_back(stage);
  };
  for (int s = 0; s <= static_cast<int>(Stage::kLogits); ++s)
    add(std::string(StageName(static_cast<Stage>(s))));
  int layers = 1;
  for (const auto& [place, count] : counts) {
    add(place.first);
    layers = std::max(layers, place.second + 1);
  }
  const double width = kNames + kBox * (layers + 1);
  const double height = kBox * static_cast<double>(stages.size() + 1);
  ReportPicture picture{.caption = "Layer and stage that differ first, and in how many files"};
  picture.svg = fmt::format(
      "<svg role=\"img\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\"><title>Layers and "
      "stages</title>",
      width, height);
  for (int layer = -1; layer < layers; ++layer) {
    picture.svg += fmt::format("<text x=\"{}\" y=\"18\">{}</text>", kNames + kBox * (layer + 1) + 8,
                               layer < 0 ? "-" : fmt::format("{}", layer));
  }
  double y = kBox;
  for (const std::string& stage : stages) {
    picture.svg += fmt::format("<text x=\"0\" y=\"{}\">{}</text>", y + 17, Escaped(stage));
    for (int layer = -1; layer < layers; ++layer) {
      const auto found = counts.find({stage, layer});
      const double x = kNames + kBox * (layer + 1);
      picture.svg +=
          fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                      found == counts.end() ? "zone" : "bad-box", x + 1, y + 1, kBox - 2, kBox - 2);
      if (found == counts.end()) continue;
      picture.svg += fmt::format("<text class=\"bad-text\" x=\"{}\" y=\"{}\">{}</text>", x + 8,
                                 y + 17, found->second);
      picture.text += fmt::format("{} at layer {}: {} files. ", stage, layer, found->second);
    }
    y += kBox;
  }
  picture.svg += "</svg>";
  return picture;
}

// What became of an operation.
enum class Became : char { kDone = '.', kRefused = 'r', kThrew = 't' };

// How an operation looks in the column of its time.
const char* LookOf(ScriptOpKind kind, Became became) {
  if (became != Became::kDone) return "zone";
  switch (kind) {
    case ScriptOpKind::kUpdate:
    case ScriptOpKind::kCommit:
      return "good-box";
    case ScriptOpKind::kReserve:
      return "open-box";
    default:
      return "zone";
  }
}

// Operations to the right, positions downwards, lines between blocks. Rows that an operation
// writes or publishes are filled, reserved ones open, those of a refused or failed operation
// neither; a rollback or a clear is a line at the length that is left. The column in which the
// difference shows is framed. `became`: by operation, as far as they ran.
ReportPicture ScriptPicture(const CacheScript& script, int32_t block_size, int32_t found_at,
                            const std::string& became) {
  constexpr double kLeft = 60, kTop = 62, kColumn = 74, kRowMax = 22;
  const int32_t positions = std::max(script.geometry.max_length, 1);
  const double row = std::clamp(420.0 / positions, 1.0, kRowMax);
  const double width =
      kLeft + kColumn * static_cast<double>(std::max<size_t>(script.ops.size(), 1));
  const double bottom = kTop + row * positions;
  ReportPicture picture{.caption = "Positions downwards, operations to the right",
                        .text = ScriptText(script)};
  std::string& svg = picture.svg;
  svg = fmt::format(
      "<svg role=\"img\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\"><title>{2}</title>",
      width, bottom + row + 8, Escaped(script.cache));
  const int32_t step = block_size > 0 ? block_size : std::max(positions, 1);
  for (int32_t p = 0; p <= positions; p += step) {
    svg += fmt::format("<line class=\"axis\" x1=\"0\" x2=\"{0}\" y1=\"{1}\" y2=\"{1}\"/>", width,
                       kTop + row * p);
    if (p == positions || step > positions) continue;
    svg += fmt::format("<text x=\"0\" y=\"{}\">{}</text>", kTop + row * p + 12,
                       block_size > 0 ? fmt::format("block {}", p / step) : std::string("row 0"));
  }
  double x = kLeft;
  for (size_t i = 0; i < script.ops.size(); ++i, x += kColumn) {
    const ScriptOp& op = script.ops[i];
    svg += fmt::format("<g><title>{}: {}</title><text x=\"{:.1f}\" y=\"14\">{}</text>", i + 1,
                       Escaped(ScriptOpText(op)), x + 4, ScriptOpName(op.kind));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"30\">layer {}</text>", x + 4, op.layer);
    const auto end = i < became.size() ? static_cast<Became>(became[i]) : Became::kDone;
    if (end != Became::kDone) {
      svg += fmt::format("<text class=\"bad-text\" x=\"{:.1f}\" y=\"46\">{}</text>", x + 4,
                         end == Became::kRefused ? "refused" : "threw");
    }
    for (const int32_t position : op.positions) {
      const bool outside = position < 0 || position >= positions;
      const double at =
          outside ? (position < 0 ? kTop - row - 2 : bottom + 2) : kTop + row * position;
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\"/>",
          outside ? "bad-box" : LookOf(op.kind, end), x + 6, at + 1, kColumn - 14,
          std::max(row - 2, 1.0));
    }
    const bool shortens = op.kind == ScriptOpKind::kRollback || op.kind == ScriptOpKind::kClear;
    if (shortens && end == Became::kDone) {
      const double at = kTop + row * std::clamp(op.target, 0, positions);
      svg += fmt::format(
          "<line class=\"bar bad-mark\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" "
          "y2=\"{2:.1f}\"/>",
          x + 2, x + kColumn - 4, at);
    }
    if (static_cast<int32_t>(i) == found_at) {
      svg +=
          fmt::format("<rect class=\"frame\" x=\"{:.1f}\" y=\"2\" width=\"{}\" height=\"{:.1f}\"/>",
                      x + 1, kColumn - 4, bottom + row + 4);
    }
    svg += "</g>";
  }
  svg += "</svg>";
  return picture;
}

// As long as a script of the shrinker's size never takes, and a cache that hangs does.
constexpr int32_t kScriptMilliseconds = 20000;

// What the cache does with the script, as JSON. What became of an operation is what the counts of
// the script up to it have more than those up to the one before.
std::string JudgedText(const CacheScript& script) {
  const ScriptSubject subject = RegisteredSubject(script.cache);
  try {
    subject.make(script);
  } catch (const std::exception& error) {
    return json{{"error", error.what()}}.dump();
  }
  const ScriptRun run = RunScript(script, subject);
  json judged = {{"found_at", run.finding ? run.finding->op : -1}};
  judged["sentence"] = run.finding ? fmt::format("after operation {}: [{}] {}", run.finding->op + 1,
                                                 run.finding->clause, run.finding->what)
                                   : fmt::format("{} operations, {} rows equal the model's",
                                                 run.counts.operations, run.counts.rows_compared);
  std::string became;
  ScriptCounts before;
  CacheScript part = script;
  part.ops.clear();
  for (const ScriptOp& op : script.ops) {
    part.ops.push_back(op);
    const ScriptRun upto = RunScript(part, subject);
    Became now = Became::kDone;
    if (upto.counts.refused > before.refused) now = Became::kRefused;
    if (upto.counts.threw > before.threw) now = Became::kThrew;
    became += static_cast<char>(now);
    before = upto.counts;
    if (upto.finding) break;
  }
  judged["became"] = became;
  return judged.dump();
}

}  // namespace

ReportPart ExplainPart(const json& explain) {
  const bool holds = explain.at("holds");
  ReportPart part{.title = "Golden files",
                  .verdict = holds ? ReportVerdict::kHolds : ReportVerdict::kFails,
                  .command = explain.at("command")};
  part.table.header = {"case", "rows", "cache", "first difference", "cause", "evidence"};
  std::map<std::pair<std::string, int>, int> places;
  size_t differing = 0;
  for (const json& one : explain.at("explanations")) {
    const std::string name = one.at("case"), rows = one.at("rows"), cache = one.at("cache");
    if (one.at("holds").get<bool>()) {
      part.table.rows.push_back({name, rows, cache, "none", "", ""});
      continue;
    }
    ++differing;
    const json& first = one.at("first");
    const std::string sentence = first.at("sentence");
    const json cause = one.value("cause", json::object());
    const std::string named = cause.value("class", std::string("unknown"));
    part.table.rows.push_back(
        {name, rows, cache, sentence, named, cause.value("evidence", std::string())});
    part.complaints.push_back(fmt::format("{} ({}): {}: {}", name, rows, sentence, named));
    ++places[{first.at("fact").get<std::string>(), first.value("layer", -1)}];
  }
  part.sentence =
      fmt::format("{} of {} golden files differ", differing, explain.at("explanations").size());
  if (!places.empty()) part.pictures.push_back(PlaceMap(places));
  return part;
}

ReportPart ScriptPart(const std::string& text, const std::string& path) {
  const CacheScript script = ParseScript(text, path);
  const CacheSpec spec = ParseCacheSpec(script.cache);
  const IsolatedCall call =
      RunIsolatedCall([&] { return JudgedText(script); }, kScriptMilliseconds);
  ReportPart part{.title = "Script on " + script.cache, .verdict = ReportVerdict::kHolds};
  part.command = "lockstep replay " + path;
  std::string became;
  int32_t found_at = -1;
  if (call.end.kind != IsolatedEnd::Kind::kReturned) {
    part.sentence = "the run " + call.end.Text();
  } else {
    const json judged = json::parse(call.output);
    if (judged.contains("error")) {
      throw Error({path,
                   fmt::format("its cache cannot be made: {}", judged["error"].get<std::string>()),
                   "correct the first line of the script"});
    }
    became = judged["became"];
    found_at = judged["found_at"];
    part.sentence = judged["sentence"];
  }
  if (call.end.kind != IsolatedEnd::Kind::kReturned || found_at >= 0) {
    part.verdict = ReportVerdict::kFails;
    part.complaints.push_back(part.sentence);
  }
  part.pictures.push_back(ScriptPicture(script, spec.block_size, found_at, became));
  return part;
}

}  // namespace lockstep::internal
