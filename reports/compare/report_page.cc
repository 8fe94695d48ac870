#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reports/compare_report.h"
#include "reports/markup.h"
#include "reports/page.h"

namespace lockstep {
namespace {

constexpr std::string_view kStyle = R"(
  .verdict { display: inline-block; border-radius: 4px; padding: 0 8px; }
  .bad { background: var(--bad); color: var(--bad-ink); }
  .open { background: var(--open); color: var(--open-ink); }
  .good { background: var(--good); color: var(--good-ink); }
  .same { background: var(--absent); color: var(--quiet); }
  .outcome { font-weight: 600; font-size: 15px; padding: 3px 10px; overflow-wrap: anywhere; }
  ul.benchmarks { list-style: none; margin: 18px 0; padding: 0; }
  ul.benchmarks > li { border-top: 1px solid var(--line); }
  summary { display: grid; grid-template-columns: 14px minmax(0, 5fr) minmax(0, 4fr) 240px;
            gap: 4px 14px; padding: 7px 4px; cursor: pointer; align-items: center;
            list-style: none; }
  summary::-webkit-details-marker { display: none; }
  summary::before { content: "+"; color: var(--quiet); }
  details[open] > summary::before { content: "-"; }
  summary:hover { background: var(--code); }
  summary:focus-visible { outline: 2px solid var(--ink); outline-offset: -2px; }
  ul.alone { list-style: none; margin: 12px 0; padding: 0; }
  ul.alone > li { padding: 3px 4px; overflow-wrap: anywhere; }
  .name { font-weight: 600; overflow-wrap: anywhere; }
  .details { padding: 4px 4px 16px 32px; }
  dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 18px;
       margin: 6px 0; }
  dt { color: var(--quiet); }
  dd { margin: 0; overflow-wrap: anywhere; }
  svg { display: block; max-width: 100%; height: auto; }
  .wide svg { max-width: none; }
  .wide:focus-visible { outline: 2px solid var(--ink); }
  .zone { fill: var(--absent); }
  .axis { stroke: var(--quiet); stroke-width: 1; }
  .bar { stroke-width: 3; }
  .bad-mark { stroke: var(--bad-ink); fill: var(--bad-ink); }
  .open-mark { stroke: var(--open-ink); fill: var(--open-ink); }
  .good-mark { stroke: var(--good-ink); fill: var(--good-ink); }
  .same-mark { stroke: var(--quiet); fill: var(--quiet); }
  .left-out { fill: none; stroke: var(--quiet); }
  svg text { fill: var(--quiet); font-size: 11px; }
  @media (max-width: 760px) {
    main { padding: 14px; }
    summary { grid-template-columns: 14px minmax(0, 1fr); }
    summary > * { grid-column: 2; }
    .details { padding-left: 4px; }
    dl { grid-template-columns: minmax(0, 1fr); }
    dd { margin-bottom: 6px; }
  }
)";

struct Look {
  const char* css_class;
  const char* mark;  // so that nobody has to tell colours apart
};

Look LookOf(const BenchComparison& c) {
  if (c.regressed()) return {"bad", "✗"};
  if (c.verdict == BenchVerdict::kInconclusive) return {"open", "?"};
  if (c.verdict == BenchVerdict::kFaster) return {"good", "▲"};
  return {"same", "="};
}

// ---- Pictures ---------------------------------------------------------------------------

// Natural logarithms of ratios from -limit to limit over `width` pixels.
class RatioAxis {
 public:
  RatioAxis(double limit, double width) : limit_(limit), width_(width) {}

  double At(double ratio) const {
    const double log_ratio = ratio > 0 ? std::log(ratio) : -limit_;
    return width_ / 2 * (1 + std::clamp(log_ratio / limit_, -1.0, 1.0));
  }

 private:
  double limit_, width_;
};

// What the whole page's axis shows on each side: the farthest interval, between 10 % and a factor
// of 3.
double AxisLimit(const Comparison& comparison) {
  double limit = std::log(1.1);
  for (const BenchComparison& c : comparison.benchmarks) {
    if (c.rounds == 0 || c.low <= 0) continue;
    limit = std::max({limit, std::log(c.high), -std::log(c.low)});
  }
  return std::min(1.05 * limit, std::log(3.0));
}

std::string IntervalPicture(const BenchComparison& c, double limit) {
  constexpr double kWidth = 240;
  const RatioAxis axis(limit, kWidth);
  const Look look = LookOf(c);
  const double from = axis.At(1 / (1 + c.within)), to = axis.At(1 + c.within);
  return fmt::format(
      "<svg role=\"img\" aria-label=\"cost ratio {:.3f}, interval {:.3f} to {:.3f}\" width=\"240\" "
      "height=\"20\" viewBox=\"0 0 240 20\"><rect class=\"zone\" x=\"{:.1f}\" y=\"0\" "
      "width=\"{:.1f}\" height=\"20\"/><line class=\"axis\" x1=\"120\" x2=\"120\" y1=\"0\" "
      "y2=\"20\"/><line class=\"bar {}-mark\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"10\" y2=\"10\"/>"
      "<circle class=\"{}-mark\" cx=\"{:.1f}\" cy=\"10\" r=\"4\"/></svg>",
      c.ratio, c.low, c.high, from, to - from, look.css_class, axis.At(c.low), axis.At(c.high),
      look.css_class, axis.At(c.ratio));
}

// The samples of both sides in their order, each over the baseline's median: dots of the baseline
// are open, those of the subject filled.
std::string SamplePicture(const BenchResult& baseline, const BenchResult& subject,
                          const BenchComparison& c) {
  constexpr double kHeight = 110, kWidth = 720, kLeft = 46;
  if (c.baseline <= 0) return "";
  double limit = std::log(1.1);
  size_t most = 1;
  for (const BenchResult* side : {&baseline, &subject}) {
    most = std::max(most, side->samples.size());
    for (const BenchSample& sample : side->samples) {
      limit = std::max(limit, std::abs(std::log(sample.value / c.baseline)));
    }
  }
  limit = std::min(1.05 * limit, std::log(8.0));
  const RatioAxis axis(limit, kHeight - 8);  // with room for the dots at both ends
  std::string svg = fmt::format(
      "<svg role=\"img\" aria-label=\"all samples over the baseline's median, in order\" "
      "width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\"><line class=\"axis\" x1=\"{2}\" "
      "x2=\"{0}\" y1=\"{3}\" y2=\"{3}\"/><text x=\"0\" y=\"12\">x{4:.2f}</text><text x=\"0\" "
      "y=\"{5}\">x1.00</text><text x=\"0\" y=\"{6}\">x{7:.2f}</text>",
      kWidth, kHeight, kLeft, kHeight / 2, std::exp(limit), kHeight / 2 + 4, kHeight - 3,
      std::exp(-limit));
  const auto add = [&](const BenchResult& side, const char* css_class, double shift) {
    const double step = (kWidth - kLeft - 12) / static_cast<double>(most);
    for (size_t i = 0; i < side.samples.size(); ++i) {
      svg += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", css_class,
                         kLeft + 6 + step * static_cast<double>(i) + shift,
                         kHeight - 4 - axis.At(side.samples[i].value / c.baseline));
    }
  };
  add(baseline, "left-out", 0);
  add(subject, LookOf(c).css_class == std::string_view("bad") ? "bad-mark" : "same-mark", 4);
  return WideRegion("samples of " + Escaped(c.name), svg + "</svg>\n") +
         "<p class=\"quiet\">○ baseline, ● subject, over the baseline's median</p>\n";
}

// ---- Text -------------------------------------------------------------------------------

void AddTerm(const std::string& term, const std::string& text, std::string* html) {
  *html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", term, Escaped(text));
}

// The range of one part of the state over all samples of both sides.
void AddState(const char* term, std::optional<double> MachineState::*member, double scale,
              const char* unit, const BenchResult* const (&sides)[2], std::string* html) {
  double low = 0, high = 0;
  bool any = false;
  for (const BenchResult* side : sides) {
    for (const BenchSample& sample : side->samples) {
      const std::optional<double>& value = sample.state.*member;
      if (!value) continue;
      low = any ? std::min(low, *value) : *value;
      high = any ? std::max(high, *value) : *value;
      any = true;
    }
  }
  if (any) AddTerm(term, fmt::format("{:.3g} to {:.3g} {}", low * scale, high * scale, unit), html);
}

std::string DetailsOf(const Comparison& comparison, const BenchComparison& c) {
  const BenchResult* const sides[2] = {comparison.baseline.Find(c.name),
                                       comparison.subject.Find(c.name)};
  std::string html = "<div class=\"details\">\n<dl>\n";
  if (c.rounds > 0) {
    AddTerm("baseline", ValueText(c.baseline, c.unit), &html);
    AddTerm("subject", ValueText(c.subject, c.unit), &html);
    AddTerm("cost ratio",
            fmt::format("{:.4f} [{:.4f}, {:.4f}]{}", c.ratio, c.low, c.high,
                        c.by_limit ? ", as fractions of the machine's limit" : ""),
            &html);
    AddTerm("p, of all benchmarks", fmt::format("{:.2g}", c.p_value), &html);
    AddTerm("detectable", fmt::format("{:.1f} %", 100 * c.detectable), &html);
  }
  AddTerm("rounds",
          c.rounds_left > 0
              ? fmt::format("{}, and {} left out: the machine changed", c.rounds, c.rounds_left)
              : fmt::format("{}", c.rounds),
          &html);
  for (const std::string& text : CounterTexts(c)) AddTerm("counters and bits", text, &html);
  AddState("read, one thread", &MachineState::read_bandwidth_one, 1e-9, "GB/s", sides, &html);
  AddState("read, all processors", &MachineState::read_bandwidth_all, 1e-9, "GB/s", sides, &html);
  AddState("barrier", &MachineState::barrier_seconds, 1e9, "ns", sides, &html);
  AddState("other load", &MachineState::others, 100, "%", sides, &html);
  AddState("steal", &MachineState::steal, 100, "%", sides, &html);
  html += "</dl>\n" + SamplePicture(*sides[0], *sides[1], c);
  return html + "</div>\n";
}

// What one side alone has.
std::string AloneList(const Comparison& comparison) {
  std::string html;
  const auto add = [&](const char* mark, const std::string& text) {
    html +=
        fmt::format("<li><span class=\"verdict same\">{}</span> {}</li>\n", mark, Escaped(text));
  };
  for (const OneSided& one : comparison.gone) add("−", GoneText(one));
  for (const OneSided& one : comparison.added) add("+", NewText(one));
  return html.empty() ? "" : "<ul class=\"alone\">\n" + html + "</ul>\n";
}

std::string OutcomeClass(Comparison::Outcome outcome) {
  if (outcome == Comparison::Outcome::kRegression) return "bad";
  return outcome == Comparison::Outcome::kHolds ? "good" : "open";
}

}  // namespace

std::string ComparisonHtml(const Comparison& comparison, const std::string& command) {
  const std::string sentence = Escaped(ComparisonSentence(comparison));
  std::string body = fmt::format(
      "<h1>Benchmarks compared</h1>\n<p><span class=\"verdict outcome {}\">{}</span></p>\n",
      OutcomeClass(comparison.outcome()), sentence);
  for (const std::string& note : ComparisonNotes(comparison)) {
    body += fmt::format("<p class=\"quiet\">{}</p>\n", Escaped(note));
  }
  body += AloneList(comparison);
  const double limit = AxisLimit(comparison);
  body += fmt::format(
      "<p class=\"quiet\">The bars are the intervals of subject over baseline, from x{:.2f} to "
      "x{:.2f}; left is cheaper; within the grey it is the same.</p>\n<ul class=\"benchmarks\">\n",
      std::exp(-limit), std::exp(limit));
  for (const BenchComparison* c : ByConcern(comparison)) {
    const Look look = LookOf(*c);
    const std::string verdict = c->regressed() ? ReproachText(*c) : VerdictText(*c);
    body += fmt::format(
        "<li><details><summary><span class=\"name\">{}</span><span><span class=\"verdict {}\">{} "
        "{}</span></span><span>{}</span></summary>\n{}</details></li>\n",
        Escaped(c->name), look.css_class, look.mark, Escaped(verdict),
        c->rounds > 0 ? IntervalPicture(*c, limit) : "", DetailsOf(comparison, *c));
  }
  body += fmt::format("</ul>\n<p class=\"quiet\">{}</p>\n", Escaped(command));
  return Page({.title = sentence, .style = kStyle, .body = body});
}

}  // namespace lockstep
