// What lockstep's HTML pages share: one self-contained file each, without scripts and without
// references to other resources, in the reader's light or dark theme, readable on a phone.
#ifndef LOCKSTEP_REPORTS_PAGE_H_
#define LOCKSTEP_REPORTS_PAGE_H_

#include <string>
#include <string_view>

namespace lockstep {

// A whole page. The style may use the colours --paper, --ink, --quiet, --line, --code, --good,
// --good-ink, --bad, --bad-ink, --open, --open-ink, which follow the theme. Title and style are
// escaped or trusted by the caller, as is the body.
struct PageParts {
  std::string title;  // escaped
  std::string_view style;
  std::string body;  // inside <main>
};
std::string Page(const PageParts& parts);

// What may be wider than a window and is scrolled by itself, then by the keyboard too: tables,
// pictures. `label`, escaped, says what it is to those who do not see it.
std::string WideRegion(std::string_view label, std::string_view body);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_PAGE_H_
