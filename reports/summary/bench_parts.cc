// Parts about time: what a comparison of two builds says, and levels over a history.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reports/history.h"
#include "reports/markup.h"
#include "reports/summary/parts.h"

namespace lockstep::internal {
namespace {

using nlohmann::json;

constexpr double kWidth = 340;       // fits a phone
constexpr double kCharacter = 6.7;   // of 11 pixels, monospaced
constexpr size_t kPicturesMax = 60;  // benchmarks of a history that are drawn

// What fits a picture's width; all of it stands beside the picture, in words.
std::string Fitting(const std::string& name) {
  constexpr auto kMost = static_cast<size_t>(kWidth / kCharacter);
  if (name.size() <= kMost) return name;
  size_t end = kMost - 1;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0u) == 0x80u) --end;  // UTF-8
  return name.substr(0, end) + "…";
}

// Cost ratios with their intervals below the benchmarks' names; to the right is slower. Widths in
// logarithms, the farthest interval fills it.
ReportPicture RatioPicture(const json& benchmarks) {
  constexpr double kLine = 34, kBar = 24;
  double limit = std::log(1.1);
  for (const json& b : benchmarks) {
    const double low = b.at("low"), high = b.at("high");
    if (low > 0) limit = std::max({limit, std::log(high), -std::log(low)});
  }
  limit = std::min(1.05 * limit, std::log(3.0));
  const auto at = [&](double ratio) {
    const double share = ratio > 0 ? std::log(ratio) / limit : -1;
    return 6 + (kWidth - 12) / 2 * (1 + std::clamp(share, -1.0, 1.0));
  };
  const double height = kLine * static_cast<double>(benchmarks.size()) + 22;
  ReportPicture picture{.caption = "Cost of the subject over the baseline's, with its interval"};
  picture.svg = fmt::format(
      "<svg role=\"img\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">"
      "<title>Cost ratios</title>",
      kWidth, height);
  double y = 0;
  for (const json& b : benchmarks) {
    const std::string name = b.at("name"), text = b.at("text");
    const char* look = b.at("regressed").get<bool>()       ? "bad-mark"
                       : b.at("verdict") == "inconclusive" ? "open-mark"
                                                           : "good-mark";
    picture.svg += fmt::format(
        "<g><title>{}: {}</title><text x=\"0\" y=\"{}\">{}</text><line class=\"axis\" "
        "x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>",
        Escaped(name), Escaped(text), y + 12, Escaped(Fitting(name)), at(1), at(1), y + kBar - 7,
        y + kBar + 7);
    if (b.at("rounds").get<int64_t>() > 0) {
      picture.svg += fmt::format(
          "<line class=\"bar {0}\" x1=\"{1:.1f}\" x2=\"{2:.1f}\" y1=\"{3}\" y2=\"{3}\"/>"
          "<circle class=\"{0}\" cx=\"{4:.1f}\" cy=\"{3}\" r=\"4\"/>",
          look, at(b.at("low")), at(b.at("high")), y + kBar, at(b.at("ratio")));
    }
    picture.svg += "</g>";
    picture.text += fmt::format("{}: {}. ", name, text);
    y += kLine;
  }
  picture.svg +=
      fmt::format("<text x=\"{:.1f}\" y=\"{}\">faster | slower, up to x{:.2f}</text></svg>",
                  at(1) - 7 * kCharacter - 3, y + 14, std::exp(limit));
  return picture;
}

// A series as dots, its levels as lines.
ReportPicture SeriesPicture(const HistorySeries& series,
                            const std::vector<HistoryChange>& changes) {
  constexpr double kHeight = 112, kLeft = 48, kRight = 8, kTop = 14, kBottom = 26;
  double low = series.points[0].cost, high = low;
  for (const HistoryPoint& point : series.points) {
    low = std::min(low, point.cost);
    high = std::max(high, point.cost);
  }
  const double span = std::max(std::log(high / low), std::log(1.02));
  const auto x = [&](double i) {
    const auto last = static_cast<double>(std::max<size_t>(series.points.size() - 1, 1));
    return kLeft + (kWidth - kLeft - kRight) * i / last;
  };
  const auto y = [&](double cost) {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::log(cost / low) / span;
  };
  ReportPicture picture{.caption = series.benchmark};
  // The axis: the least cost, and by how much the largest is more.
  picture.svg = fmt::format(
      "<svg role=\"img\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\"><title>{2}</title>"
      "<text x=\"0\" y=\"{3:.1f}\">x{4:.2f}</text><text x=\"0\" y=\"{5:.1f}\">x1.00</text>"
      "<line class=\"axis\" x1=\"{6}\" x2=\"{0}\" y1=\"{7:.1f}\" y2=\"{7:.1f}\"/>"
      "<text x=\"{6}\" y=\"{8}\">older</text><text x=\"{9}\" y=\"{8}\">newer</text>",
      kWidth, kHeight, Escaped(series.benchmark), kTop + 4, std::exp(span), kHeight - kBottom + 4,
      kLeft - 4, kHeight - kBottom + 8, kHeight - 4, kWidth - 5 * kCharacter);
  double label_end = kLeft + 6 * kCharacter;
  for (const HistoryChange& change : changes) {
    if (change.benchmark != series.benchmark) continue;
    const double middle = x(static_cast<double>(change.at) - 0.5);
    const std::string by = fmt::format("x{:.3f}", change.ratio);
    picture.svg += fmt::format(
        "<line class=\"bar {0}\" x1=\"{1:.1f}\" x2=\"{1:.1f}\" y1=\"2\" y2=\"{2}\"><title>{3} "
        "between {4} and {5}</title></line>",
        change.ratio > 1 ? "bad-mark" : "good-mark", middle, kHeight - kBottom + 8, by,
        Escaped(change.commit_before), Escaped(change.commit_after));
    // Between "older" and "newer", where the label before it leaves room.
    const double width = static_cast<double>(by.size() + 1) * kCharacter;
    const double left = std::min(middle - width / 2, kWidth - 6 * kCharacter - width);
    if (left < label_end) continue;
    picture.svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>", left, kHeight - 4, by);
    label_end = left + width;
  }
  for (size_t i = 0; i < series.points.size(); ++i) {
    const HistoryPoint& point = series.points[i];
    picture.svg += fmt::format(
        "<circle class=\"same-mark\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {:.4g}</title>"
        "</circle>",
        x(static_cast<double>(i)), y(point.cost), Escaped(point.commit), point.cost);
  }
  picture.svg += "</svg>";
  picture.text = fmt::format("{} runs between {:.4g} and {:.4g}", series.points.size(), low, high);
  return picture;
}

}  // namespace

ReportPart BenchPart(const json& comparison) {
  const std::string outcome = comparison.at("outcome");
  ReportPart part{.title = "Benchmarks of two builds",
                  .verdict = outcome == "holds"        ? ReportVerdict::kHolds
                             : outcome == "regression" ? ReportVerdict::kFails
                                                       : ReportVerdict::kOpen,
                  .sentence = comparison.at("sentence"),
                  .command = comparison.at("command")};
  part.table.header = {"benchmark", "verdict", "cost ratio", "detectable", "rounds", "bits"};
  for (const json& b : comparison.at("benchmarks")) {
    const std::string name = b.at("name"), text = b.at("text");
    const bool bits = b.at("bits_changed").get<bool>();
    part.table.rows.push_back({name, text,
                               fmt::format("{:.3f} [{:.3f}, {:.3f}]", b.at("ratio").get<double>(),
                                           b.at("low").get<double>(), b.at("high").get<double>()),
                               fmt::format("{:.1f} %", 100 * b.at("detectable").get<double>()),
                               fmt::format("{}", b.at("rounds").get<int64_t>()),
                               bits ? "CHANGED" : "equal"});
    if (!b.at("regressed").get<bool>()) continue;
    std::string complaint = fmt::format("{}: {}", name, text);
    if (bits) complaint += ", other bits";
    for (const json& counter : b.at("counters")) {
      if (!counter.at("worse").get<bool>()) continue;
      complaint +=
          fmt::format(", {} {} -> {}", counter.at("name").get<std::string>(),
                      counter.at("baseline").get<double>(), counter.at("subject").get<double>());
    }
    part.complaints.push_back(complaint);
  }
  if (!part.table.rows.empty()) part.pictures.push_back(RatioPicture(comparison.at("benchmarks")));
  for (const char* what : {"gone", "new"}) {
    for (const json& one : comparison.value(what, json::array())) {
      const std::string text = one.at("text");
      part.table.rows.push_back({one.at("name"),
                                 text.empty() ? what : fmt::format("{}: {}", what, text), "", "",
                                 "", ""});
    }
  }
  return part;
}

ReportPart HistoryPart(const std::string& path) {
  const History history(path);
  ReportPart part{.title = "Benchmarks over time", .verdict = ReportVerdict::kHolds};
  part.table.header = {"machine", "benchmark", "runs", "changes of level"};
  std::set<std::string> machines;
  const std::vector<HistoryEntry> entries = history.Entries();
  for (const HistoryEntry& entry : entries) machines.insert(entry.fingerprint);
  size_t changed = 0;
  std::vector<ReportPicture> quiet;
  for (const std::string& machine : machines) {
    const std::vector<HistoryChange> changes = history.Changes(machine);
    changed += changes.size();
    for (const HistoryChange& change : changes) {
      if (change.ratio <= 1) continue;
      part.complaints.push_back(fmt::format("{} on {}: cost x{:.3f} between {} and {}",
                                            change.benchmark, machine, change.ratio,
                                            change.commit_before, change.commit_after));
    }
    for (const HistorySeries& series : history.Series(machine)) {
      const auto count = std::ranges::count(changes, series.benchmark, &HistoryChange::benchmark);
      part.table.rows.push_back({machine, series.benchmark, fmt::format("{}", series.points.size()),
                                 fmt::format("{}", count)});
      (count > 0 ? part.pictures : quiet).push_back(SeriesPicture(series, changes));
    }
  }
  part.pictures.insert(part.pictures.end(), quiet.begin(), quiet.end());
  if (part.pictures.size() > kPicturesMax) part.pictures.resize(kPicturesMax);
  if (!part.complaints.empty()) part.verdict = ReportVerdict::kFails;
  if (entries.empty()) part.verdict = ReportVerdict::kOpen;
  part.sentence = fmt::format("{} runs on {} machines, {} changes of level, {} of them slower",
                              entries.size(), machines.size(), changed, part.complaints.size());
  return part;
}

}  // namespace lockstep::internal
