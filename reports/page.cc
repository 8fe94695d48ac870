#include "reports/page.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::string_view kBaseStyle = R"(
  :root { --paper: #fbfbfa; --ink: #1c2024; --quiet: #5d6670; --line: #d9dde1; --code: #eef0f2;
          --good: #d5ecdc; --good-ink: #0d5a2a; --bad: #f6c9c4; --bad-ink: #8c1410;
          --open: #f3e3b8; --open-ink: #634a00; --absent: #eceef0; }
  @media (prefers-color-scheme: dark) {
    :root { --paper: #15181b; --ink: #e6e9ec; --quiet: #9aa4ae; --line: #32383e; --code: #20252a;
            --good: #173a26; --good-ink: #9fe0b6; --bad: #57201d; --bad-ink: #ffb9b2;
            --open: #4a3b10; --open-ink: #f2d58a; --absent: #24292e; }
  }
  body { margin: 0; background: var(--paper); color: var(--ink);
         font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
  main { max-width: 1180px; margin: 0 auto; padding: 24px; }
  h1 { font-size: 19px; margin: 0; }
  p { margin: 6px 0; overflow-wrap: anywhere; }
  .quiet { color: var(--quiet); }
  .wide { overflow-x: auto; }
  a { color: inherit; }
)";

}  // namespace

std::string Page(const PageParts& parts) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{}</title>\n"
      "<style>{}{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
      parts.title, kBaseStyle, parts.style, parts.body);
}

std::string WideRegion(std::string_view label, std::string_view body) {
  return fmt::format(
      "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\n{}</div>\n", label,
      body);
}

}  // namespace lockstep
