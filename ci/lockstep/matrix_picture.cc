#include "ci/lockstep/matrix_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "reports/markup.h"
#include "reports/page.h"

namespace lockstep::cli {
namespace {

using Verdict = MatrixCell::Verdict;

// Pixels. Text has no measurable width without a font: a monospaced character is 0.6 of its size.
constexpr int kWidth = 1180;
constexpr int kMargin = 24;
constexpr int kFontSize = 12;
constexpr double kCharacter = 0.6 * kFontSize;
constexpr double kQuietCharacter = 0.6 * 11;
constexpr int kBoxHeight = 24;
constexpr int kBoxGap = 6;
constexpr int kBoxesLeft = 330;   // where boxes begin
constexpr int kBoxesRight = 930;  // where a line of boxes is full
constexpr int kControlLeft = 950;
constexpr int kHeaderHeight = 92;
constexpr int kBareHeight = 22;  // of a header without title
constexpr int kRowGap = 14;
constexpr int kRowMin = 38;
constexpr int kLegendHeight = 66;
constexpr int kBareLegendHeight = 42;  // of a legend without command

// Verdicts differ in their mark too, so that nobody has to tell colours apart.
struct Look {
  std::string_view css_class;
  std::string_view mark;
};

Look LookOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return {"equal", "="};
    case Verdict::kDiffers:
      return {"differs", "≠"};
    case Verdict::kUnproved:
      return {"unproved", "?"};
    case Verdict::kNotAvailable:
      return {"absent", "–"};
  }
  return {"absent", "?"};
}

constexpr std::string_view kStyle = R"(
  .matrix { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
            --paper: #fbfbfa; --ink: #1c2024; --quiet: #5d6670; --line: #d9dde1;
            --equal: #d5ecdc; --equal-ink: #0d5a2a; --differs: #f6c9c4; --differs-ink: #8c1410;
            --unproved: #f7e6b5; --unproved-ink: #6b4d00;
            --absent: #eceef0; --absent-ink: #5d6670; }
  @media (prefers-color-scheme: dark) {
    .matrix { --paper: #15181b; --ink: #e6e9ec; --quiet: #9aa4ae; --line: #32383e;
              --equal: #173a26; --equal-ink: #9fe0b6; --differs: #57201d; --differs-ink: #ffb9b2;
              --unproved: #493a10; --unproved-ink: #f3d47c;
              --absent: #24292e; --absent-ink: #9aa4ae; }
  }
  .matrix .paper { fill: var(--paper); }
  .matrix text { fill: var(--ink); }
  .matrix .title { font-size: 18px; font-weight: 600; }
  .matrix .verdict { font-size: 13px; }
  .matrix .axis { font-weight: 600; }
  .matrix .quiet { fill: var(--quiet); font-size: 11px; }
  .matrix .rule { stroke: var(--line); }
  .matrix .equal rect { fill: var(--equal); }
  .matrix .equal text { fill: var(--equal-ink); }
  .matrix .differs rect { fill: var(--differs); }
  .matrix .differs text { fill: var(--differs-ink); }
  .matrix .unproved rect { fill: var(--unproved); }
  .matrix .unproved text { fill: var(--unproved-ink); }
  .matrix .absent rect { fill: var(--absent); }
  .matrix .absent text { fill: var(--absent-ink); }
)";

// Around the picture, which has its own margin.
constexpr std::string_view kPageStyle = R"(
  .outcome { display: inline-block; border-radius: 4px; padding: 3px 10px; font-weight: 600;
             font-size: 15px; }
  .good { background: var(--good); color: var(--good-ink); }
  .bad { background: var(--bad); color: var(--bad-ink); }
  .open { background: var(--open); color: var(--open-ink); }
  .wide { margin: 14px -24px; }
  .wide svg { display: block; }
  @media (max-width: 760px) { main { padding: 14px; } .wide { margin: 14px -14px; } }
)";

std::string_view OutcomeClass(MatrixOutcome outcome) {
  switch (outcome) {
    case MatrixOutcome::kEqual:
      return "good";
    case MatrixOutcome::kDiffers:
      return "bad";
    case MatrixOutcome::kUnproved:
      break;
  }
  return "open";
}

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

int TextWidth(std::string_view text) {
  return static_cast<int>(static_cast<double>(Characters(text)) * kCharacter);
}

// A quiet text cut to what fits `width`.
std::string Fitting(std::string_view text, int width) {
  const auto most = static_cast<size_t>(width / kQuietCharacter);
  if (Characters(text) <= most) return std::string(text);
  return std::string(text.substr(0, most - 1)) + "…";
}

// Whether the picture says itself what stands above and below its boxes, or the page around it.
enum class Frame { kOwn, kOfPage };

class Picture {
 public:
  std::string Draw(const MatrixResult& result, const PictureText& text, Frame frame) {
    const bool own = frame == Frame::kOwn;
    const int header = own ? kHeaderHeight : kBareHeight;
    int y = header;
    for (const MatrixRow& row : result.rows) y = DrawRow(row, y);
    DrawLegend(y);
    if (own) {
      body_ += Text(kMargin, y + 54, "quiet", Fitting(text.repeat, kWidth - 2 * kMargin));
    }
    const int height = y + (own ? kLegendHeight : kBareLegendHeight);
    std::string svg = fmt::format(
        "<svg class=\"matrix\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
        "width=\"{}\" height=\"{}\" role=\"img\" aria-label=\"{}\">\n<style>{}</style>\n"
        "<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n",
        kWidth, height, kWidth, height, Escaped(text.title + ": " + result.verdict), kStyle, kWidth,
        height);
    if (own) {
      svg += Text(kMargin, 36, "title", text.title);
      svg += Text(kMargin, 57, "verdict", result.verdict);
      svg += Text(kMargin, 76, "quiet", Fitting(text.subject, kControlLeft - kMargin));
    }
    svg += Text(kControlLeft, header - (own ? 16 : 8), "quiet", "control");
    return svg + body_ + "</svg>\n";
  }

 private:
  static std::string Text(int x, int y, std::string_view css_class, std::string_view text) {
    return fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", css_class, x, y,
                       Escaped(text));
  }

  // A box at (x, y). Returns its width.
  int DrawBox(int x, int y, const Look& look, const std::string& value, const std::string& hover) {
    const std::string label = fmt::format("{} {}", look.mark, value);
    const int width = TextWidth(label) + 18;
    body_ += fmt::format(
        "<g class=\"{}\"><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "rx=\"4\"/><text x=\"{}\" y=\"{}\">{}</text></g>\n",
        look.css_class, Escaped(hover), x, y, width, kBoxHeight, x + 9, y + 16, Escaped(label));
    return width;
  }

  // Returns where the next row begins.
  int DrawRow(const MatrixRow& row, int top) {
    body_ += fmt::format("<line class=\"rule\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n",
                         kMargin, kWidth - kMargin, top, top);
    const int first = top + kRowGap / 2;
    body_ += Text(kMargin, first + 14, "axis", row.axis->name);
    body_ += Text(kMargin, first + 30, "quiet", Fitting(row.axis->what, kBoxesLeft - kMargin));
    int x = kBoxesLeft;
    int y = first;
    for (const MatrixCell& cell : row.cells) {
      const int width = TextWidth(cell.value) + 2 * static_cast<int>(kCharacter) + 18;
      if (x > kBoxesLeft && x + width > kBoxesRight) {
        x = kBoxesLeft;
        y += kBoxHeight + kBoxGap;
      }
      x += DrawBox(x, y, LookOf(cell.verdict), cell.value, Hover(row, cell)) + kBoxGap;
    }
    DrawControl(row, first);
    return std::max(y + kBoxHeight, first + kRowMin) + kRowGap / 2;
  }

  void DrawControl(const MatrixRow& row, int y) {
    const bool nothing = std::ranges::all_of(
        row.cells, [](const MatrixCell& c) { return c.verdict == Verdict::kNotAvailable; });
    Look look = {row.control_caught ? "equal" : "unproved", row.control_caught ? "✓" : "?"};
    if (nothing && !row.control_caught) look = LookOf(Verdict::kNotAvailable);
    DrawBox(kControlLeft, y, look, row.control.empty() ? "no control" : row.control,
            fmt::format("control of {}\n{}", row.axis->name, row.control_detail));
  }

  static std::string Hover(const MatrixRow& row, const MatrixCell& cell) {
    std::string hover =
        fmt::format("{}, {}: {}", row.axis->name, cell.value, MatrixVerdictName(cell.verdict));
    if (cell.comparisons > 0) hover += fmt::format("\n{} digests equal", cell.comparisons);
    if (cell.verdict != Verdict::kNotAvailable) hover += "\ndigest " + cell.digest.Hex();
    if (!cell.detail.empty()) hover += "\n" + cell.detail;
    return hover + fmt::format("\ntest {}", row.axis->test);
  }

  void DrawLegend(int top) {
    body_ += fmt::format("<line class=\"rule\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n",
                         kMargin, kWidth - kMargin, top, top);
    int x = kMargin;
    for (const Verdict verdict :
         {Verdict::kEqual, Verdict::kDiffers, Verdict::kUnproved, Verdict::kNotAvailable}) {
      const std::string name(MatrixVerdictName(verdict));
      x += DrawBox(x, top + 10, LookOf(verdict), name, name) + kBoxGap;
    }
    body_ += Text(x + 12, top + 26, "quiet", "✓ at the right: the axis found its control");
  }

  std::string body_;
};

}  // namespace

std::string MatrixSvg(const MatrixResult& result, const PictureText& text) {
  return Picture().Draw(result, text, Frame::kOwn);
}

std::string MatrixHtml(const MatrixResult& result, const PictureText& text) {
  const std::string title = Escaped(text.title), verdict = Escaped(result.verdict);
  std::string body = fmt::format("<h1>{}</h1>\n<p><span class=\"outcome {}\">{}</span></p>\n",
                                 title, OutcomeClass(result.outcome), verdict);
  body += fmt::format("<p class=\"quiet\">{}</p>\n", Escaped(text.subject));
  body += WideRegion(title, Picture().Draw(result, text, Frame::kOfPage));
  body += fmt::format("<p class=\"quiet\">{}</p>\n", Escaped(text.repeat));
  return Page({.title = title + ": " + verdict, .style = kPageStyle, .body = body});
}

}  // namespace lockstep::cli
