#include "reports/page.h"

#include <fmt/format.h>

#include "reports/markup.h"
#include "reports/summary.h"

namespace lockstep {
namespace {

constexpr std::string_view kStyle = R"(
  .verdict { display: inline-block; border-radius: 4px; padding: 0 8px; }
  .bad { background: var(--bad); color: var(--bad-ink); }
  .open { background: var(--open); color: var(--open-ink); }
  .good { background: var(--good); color: var(--good-ink); }
  .outcome { font-weight: 600; font-size: 15px; padding: 3px 10px; overflow-wrap: anywhere; }
  nav ul { list-style: none; margin: 14px 0; padding: 0; display: flex; flex-wrap: wrap;
           gap: 6px 18px; }
  section { border-top: 1px solid var(--line); margin-top: 22px; padding-top: 6px; }
  h2 { font-size: 16px; margin: 8px 0; overflow-wrap: anywhere; }
  .complaints { margin: 8px 0; padding-left: 20px; }
  .complaints li { overflow-wrap: anywhere; }
  summary { cursor: pointer; padding: 4px 0; }
  summary:focus-visible { outline: 2px solid var(--ink); }
  table { border-collapse: collapse; font-size: 12px; }
  th, td { border-bottom: 1px solid var(--line); padding: 3px 12px 3px 0; text-align: left;
           vertical-align: top; }
  .wide:focus-visible { outline: 2px solid var(--ink); }
  nav a { overflow-wrap: anywhere; }
  .figures { display: flex; flex-wrap: wrap; gap: 0 32px; align-items: start; }
  figure { margin: 14px 0; max-width: 100%; }
  figcaption { color: var(--quiet); margin-bottom: 4px; overflow-wrap: anywhere; }
  svg { display: block; }
  svg text { fill: var(--ink); font-size: 11px; }
  .zone { fill: var(--absent); }
  .axis { stroke: var(--line); stroke-width: 1; }
  .bar { stroke-width: 3; }
  .bad-mark { stroke: var(--bad-ink); fill: var(--bad-ink); }
  .open-mark { stroke: var(--open-ink); fill: var(--open-ink); }
  .good-mark { stroke: var(--good-ink); fill: var(--good-ink); }
  .same-mark { stroke: none; fill: var(--quiet); }
  .bad-box { fill: var(--bad); stroke: var(--bad-ink); }
  svg .bad-text { fill: var(--bad-ink); }
  .open-box { fill: none; stroke: var(--open-ink); stroke-dasharray: 3 2; }
  .good-box { fill: var(--good); stroke: var(--good-ink); }
  .frame { fill: none; stroke: var(--bad-ink); stroke-width: 2; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; color: var(--quiet); }
)";

struct Look {
  const char* css_class;
  const char* mark;  // so that nobody has to tell colours apart
};

Look LookOf(ReportVerdict verdict) {
  switch (verdict) {
    case ReportVerdict::kHolds:
      return {"good", "✓"};
    case ReportVerdict::kOpen:
      return {"open", "?"};
    case ReportVerdict::kFails:
      break;
  }
  return {"bad", "✗"};
}

std::string TableHtml(const ReportPart& part) {
  std::string html = "<table>\n<thead><tr>";
  for (const std::string& name : part.table.header) {
    html += fmt::format("<th scope=\"col\">{}</th>", Escaped(name));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : part.table.rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += fmt::format("<td>{}</td>", Escaped(cell));
    html += "</tr>\n";
  }
  return fmt::format("<details{}>\n<summary>Table, {} rows</summary>\n{}</details>\n",
                     part.table.rows.size() <= 12 ? " open" : "", part.table.rows.size(),
                     WideRegion(Escaped(part.title), html + "</tbody>\n</table>\n"));
}

std::string PictureHtml(const ReportPicture& picture) {
  return fmt::format(
      "<figure>\n<figcaption>{0}</figcaption>\n{1}<details>\n<summary>In words</summary>\n"
      "<pre>{2}</pre>\n</details>\n</figure>\n",
      Escaped(picture.caption), WideRegion(Escaped(picture.caption), picture.svg),
      Escaped(picture.text));
}

std::string SectionHtml(const ReportPart& part, size_t number) {
  const Look look = LookOf(part.verdict);
  std::string html = fmt::format(
      "<section id=\"part-{}\">\n<h2><span class=\"verdict {}\">{} {}</span> {}</h2>\n<p>{}</p>\n",
      number, look.css_class, look.mark, ReportVerdictName(part.verdict), Escaped(part.title),
      Escaped(part.sentence));
  if (!part.complaints.empty()) {
    html += "<ul class=\"complaints\">\n";
    for (const std::string& text : part.complaints) {
      html += fmt::format("<li>{}</li>\n", Escaped(text));
    }
    html += "</ul>\n";
  }
  if (!part.pictures.empty()) html += "<div class=\"figures\">\n";
  for (const ReportPicture& picture : part.pictures) html += PictureHtml(picture);
  if (!part.pictures.empty()) html += "</div>\n";
  if (!part.table.rows.empty()) html += TableHtml(part);
  html += "<p class=\"quiet\">";
  if (!part.command.empty()) html += fmt::format("<code>{}</code>, ", Escaped(part.command));
  return html + fmt::format("from {}</p>\n</section>\n", Escaped(part.source));
}

}  // namespace

std::string ReportHtml(const Report& report) {
  const Look look = LookOf(report.verdict());
  std::string body =
      fmt::format("<h1>{}</h1>\n<p class=\"outcome {}\">{} {}</p>\n", Escaped(report.title),
                  look.css_class, look.mark, Escaped(report.Sentence()));
  body += "<nav aria-label=\"Parts\">\n<ul>\n";
  for (size_t i = 0; i < report.parts.size(); ++i) {
    body += fmt::format("<li><a href=\"#part-{}\">{} {}</a></li>\n", i,
                        LookOf(report.parts[i].verdict).mark, Escaped(report.parts[i].title));
  }
  body += "</ul>\n</nav>\n";
  for (size_t i = 0; i < report.parts.size(); ++i) body += SectionHtml(report.parts[i], i);
  return Page({.title = Escaped(report.title), .style = kStyle, .body = std::move(body)});
}

}  // namespace lockstep
