// The explanation in words.
#include <fmt/format.h>

#include <algorithm>

#include "caches/digest.h"
#include "golden/explain.h"

namespace lockstep {
namespace {

constexpr size_t kElementsShown = 8;
constexpr size_t kTopsShown = 6;

std::string PositionText(int32_t position, int32_t row) {
  return position >= 0 ? fmt::format("position {}", position) : fmt::format("row {}", row);
}

std::string ValuesText(const Explanation& e) {
  const bool approximate = e.old_side == OldSide::kApproximate;
  std::string text = fmt::format("\nvalues      {} of {} elements differ, in {} rows{}\n",
                                 e.values.differing, e.values.elements, e.values.rows.size(),
                                 approximate ? ", by more than rounding" : "");
  text += fmt::format("            {:<14} {:>8}  {:<30} {:<30}\n", "", "element",
                      approximate ? "as it should be, about" : "in the golden", "now");
  for (size_t i = 0; i < std::min(kElementsShown, e.elements.size()); ++i) {
    const ElementPair& pair = e.elements[i];
    text += fmt::format("            {:<14} {:>8}  {:<30} {:<30}\n",
                        PositionText(pair.position, pair.row), pair.element,
                        ElementText(pair.before), ElementText(pair.now));
  }
  if (e.elements.size() > kElementsShown) {
    text += fmt::format("            and {} more rows\n", e.elements.size() - kElementsShown);
  }
  return text;
}

std::string HistogramText(const UlpHistogram& ulps) {
  std::string text = "\nulps apart  ";
  bool first = true;
  for (size_t bucket = 0; bucket < UlpHistogram::kBuckets; ++bucket) {
    if (ulps.counts[bucket] == 0) continue;
    text += fmt::format("{}{}: {}", first ? "" : ", ", UlpHistogram::BucketName(bucket),
                        ulps.counts[bucket]);
    first = false;
  }
  if (ulps.nan > 0) text += fmt::format("{}NaN: {}", first ? "" : ", ", ulps.nan);
  return text + "\n";
}

std::string DownstreamText(const Explanation& e) {
  if (e.downstream.empty()) return "\ndownstream  no top-5 token changes at any step\n";
  const auto argmax = std::ranges::find_if(e.downstream, &TopChange::argmax);
  std::string text = "\ndownstream  ";
  text += argmax == e.downstream.end()
              ? std::string("the likeliest token is the same at every step")
              : fmt::format(
                    "the likeliest token is another from step {} on (operation {}, "
                    "sequence {})",
                    argmax->step, argmax->op, argmax->sequence);
  text += fmt::format("; the top 5 change at {} of {} steps\n", e.downstream.size(), e.steps);
  for (size_t i = 0; i < std::min(kTopsShown, e.downstream.size()); ++i) {
    const TopChange& top = e.downstream[i];
    text += fmt::format("            step {:<4} {:<28} -> {}\n", top.step, top.before, top.now);
  }
  return text;
}

std::string TriedText(const Explanation& e) {
  std::string text;
  for (const TriedWay& tried : e.tried) {
    text += fmt::format("            {} {}\n", tried.name,
                        tried.agrees ? "agrees with the golden"
                                     : fmt::format("differs from it at {}", tried.differs));
  }
  return text;
}

}  // namespace

std::string PlaceText(const Explanation& e) {
  const Fact& place = e.place;
  if (place.op < 0) return "header: " + place.name;
  std::string text = fmt::format("operation {} ({})", place.op, e.operation);
  if (place.step >= 0) text += fmt::format(", step {}", place.step);
  if (place.sequence >= 0) text += fmt::format(", sequence {}", place.sequence);
  if (place.layer >= 0) text += fmt::format(", layer {}", place.layer);
  return text + ", " + place.name;
}

std::string ExplanationText(const Explanation& e) {
  std::string text =
      fmt::format("{}/{}.golden, recorded now on cache {}\n", e.name, e.rows, e.cache);
  if (e.changes.empty()) return text + "\nHOLDS: nothing differs\n";
  text += fmt::format("\nfirst       {}\n", PlaceText(e));
  if (!e.side.empty()) text += fmt::format("rows        {}\n", e.side);
  text += fmt::format("            {} facts differ in all\n", e.changes.size());
  text +=
      fmt::format("\ncause       {}\n            {}\n", CauseName(e.cause.cause), e.cause.evidence);
  if (e.what == "stage" || e.what == "rows") {
    text += fmt::format("\nold side    {}{}{}\n", OldSideName(e.old_side),
                        e.old_from.empty() ? "" : ", by ", e.old_from);
    text += TriedText(e);
  }
  if (e.values.elements > 0) text += ValuesText(e) + HistogramText(e.values.ulps);
  return text + DownstreamText(e);
}

}  // namespace lockstep
