#include "reports/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/file_io.h"

namespace lockstep {

std::string TableText(const Table& table) {
  std::vector<size_t> widths(table.header.size());
  const auto widen = [&](const std::vector<std::string>& row) {
    LS_CHECK(row.size() == widths.size(), "a row of {} cells under {}", row.size(), widths.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  };
  widen(table.header);
  for (const auto& row : table.rows) widen(row);
  std::string text;
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    text += line + "\n";
  };
  print(table.header);
  for (const auto& row : table.rows) print(row);
  return text;
}

std::string TableMarkdown(const Table& table) {
  std::string text;
  const auto print = [&](const std::vector<std::string>& row) {
    text += "|";
    for (const std::string& cell : row) text += fmt::format(" {} |", cell);
    text += "\n";
  };
  print(table.header);
  text += "|---|";
  for (size_t i = 1; i < table.header.size(); ++i) text += "---:|";
  text += "\n";
  for (const auto& row : table.rows) print(row);
  return text;
}

std::string ReplaceSection(std::string_view page, std::string_view name, std::string_view body) {
  const std::string begin = fmt::format("<!-- begin {} -->\n", name);
  const std::string end = fmt::format("<!-- end {} -->\n", name);
  const size_t from = page.find(begin);
  const size_t to = page.find(end);
  const bool neither = from == page.npos && to == page.npos;
  if (!neither && (from == page.npos || to == page.npos || to < from)) {
    throw Error({fmt::format("section '{}'", name), "has only one of its two marker lines",
                 "restore the other, or remove both"});
  }
  const std::string section = fmt::format("{}{}{}", begin, body, end);
  if (neither) return fmt::format("{}{}{}", page, page.empty() ? "" : "\n", section);
  return fmt::format("{}{}{}", page.substr(0, from), section, page.substr(to + end.size()));
}

void ReplaceSectionOfFile(const std::string& path, std::string_view name, std::string_view body) {
  std::string page;
  if (std::filesystem::exists(path)) page = ReadWholeTextFile(path);
  WriteWholeTextFile(path, ReplaceSection(page, name, body));
}

}  // namespace lockstep
