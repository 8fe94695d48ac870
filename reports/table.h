// Tables that a command prints, for people and for Markdown pages.
#ifndef LOCKSTEP_REPORTS_TABLE_H_
#define LOCKSTEP_REPORTS_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows = {};  // each as long as the header
};

// Columns of equal width, the first left-aligned, the rest right-aligned.
std::string TableText(const Table& table);
std::string TableMarkdown(const Table& table);

// `page` with the part between the marker lines "<!-- begin NAME -->" and "<!-- end NAME -->"
// replaced by `body`; both are added at the end when the page does not have them.
// Throws Error when only one of them is there.
std::string ReplaceSection(std::string_view page, std::string_view name, std::string_view body);

// The same for a file, which is made when there is none.
void ReplaceSectionOfFile(const std::string& path, std::string_view name, std::string_view body);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_TABLE_H_
