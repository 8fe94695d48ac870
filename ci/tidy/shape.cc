#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

// Code points of UTF-8 text: every byte but continuation bytes.
size_t Columns(std::string_view line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
  }));
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}

// Follows the braces of a file whose functions begin and end at column 0, as clang-format leaves
// them; namespaces do not count as a level. Tells where a function that ends on a line began.
class FunctionFinder {
 public:
  // Returns the first line of the function that ends on this line.
  std::optional<size_t> Next(size_t index, std::string_view line) {
    if (continued_macro_ || line.starts_with("#")) {
      continued_macro_ = line.ends_with('\\');
      return std::nullopt;
    }
    if (depth_ == 0 && (IsBlank(line) || line.starts_with("}"))) {  // "}" ends a namespace
      begin_.reset();
      return std::nullopt;
    }
    if (depth_ == 0 && (line.starts_with("namespace ") || line.starts_with("extern "))) {
      return std::nullopt;
    }
    if (!begin_) begin_ = index;
    for (const char c : line) depth_ += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (depth_ > 0) return std::nullopt;
    const bool ends = line.find_last_not_of(" \t") == 0 && line[0] == '}';
    const auto begin = begin_;
    const bool statement_ended = line.find_first_of(";}") != std::string_view::npos;
    if (statement_ended) begin_.reset();
    return ends ? begin : std::nullopt;
  }

 private:
  int depth_ = 0;
  std::optional<size_t> begin_;
  bool continued_macro_ = false;
};

}  // namespace

void CheckLines(const SourceTree& tree, Findings* findings) {
  for (const SourceFile& file : tree.files) {
    if (file.language == Language::kOther) continue;
    for (size_t i = 0; i < file.raw.size(); ++i) {
      const std::string& line = file.raw[i];
      const bool address =
          line.find("http://") != std::string::npos || line.find("https://") != std::string::npos;
      if (Columns(line) > kColumnsMax && !address) {
        findings->push_back(
            {file.path, i + 1, "line-length",
             fmt::format("{} columns; break it at {}", Columns(line), kColumnsMax)});
      }
      if (line.ends_with(' ') || line.find('\t') != std::string::npos || line.ends_with('\r')) {
        findings->push_back({file.path, i + 1, "whitespace",
                             "trailing blank, tab or carriage return; use spaces and a newline"});
      }
    }
  }
}

void CheckFileLength(const SourceTree& tree, Findings* findings) {
  for (const SourceFile& file : tree.files) {
    if (file.language == Language::kCpp && file.raw.size() > kFileLinesMax) {
      findings->push_back({file.path, 0, "file-length",
                           fmt::format("{} lines; split it by what its parts do, {} at most",
                                       file.raw.size(), kFileLinesMax)});
    }
  }
}

void CheckFunctionLength(const SourceTree& tree, Findings* findings) {
  for (const SourceFile& file : tree.files) {
    if (file.language != Language::kCpp) continue;
    FunctionFinder finder;
    for (size_t i = 0; i < file.code.size(); ++i) {
      const auto begin = finder.Next(i, file.code[i]);
      if (!begin || i - *begin < kFunctionLinesMax) continue;
      findings->push_back({file.path, *begin + 1, "function-length",
                           fmt::format("a function of {} lines; name its parts, {} at most",
                                       i - *begin + 1, kFunctionLinesMax)});
    }
  }
}

}  // namespace lockstep::tidy
