#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>

#include "ci/tidy/pattern.h"
#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

struct Include {
  size_t line = 0;  // from 1
  std::string_view path;
  bool quoted = false;
};

std::vector<Include> IncludesOf(const SourceFile& file) {
  static const Pattern pattern(R"(^\s*#\s*include\s*(["<])([^">]+)[">])");
  std::vector<Include> includes;
  for (size_t i = 0; i < file.raw.size(); ++i) {
    // The code line tells a directive from a comment; only the raw line still has the path.
    if (file.code[i].find('#') == std::string::npos) continue;
    const auto groups = pattern.Find(file.raw[i]);
    if (!groups.empty()) includes.push_back({i + 1, groups[2], groups[1] == "\""});
  }
  return includes;
}

// The folder's place in kFolders.
std::optional<ptrdiff_t> RankOf(std::string_view folder) {
  const auto* it = std::find(std::begin(kFolders), std::end(kFolders), folder);
  if (it == std::end(kFolders)) return std::nullopt;
  return it - std::begin(kFolders);
}

std::string GuardOf(std::string_view path) {
  std::string guard = "LOCKSTEP_";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    guard.push_back(std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_');
  }
  return guard + "_";
}

}  // namespace

void CheckIncludeDirections(const SourceTree& tree, Findings* findings) {
  for (const SourceFile& file : tree.files) {
    const auto own_rank = RankOf(file.folder());
    if (file.language != Language::kCpp || !own_rank) continue;
    for (const Include& include : IncludesOf(file)) {
      if (!include.quoted) continue;
      const std::string_view folder = include.path.substr(0, include.path.find('/'));
      const auto rank = RankOf(folder);
      if (!rank || folder.size() == include.path.size()) {
        findings->push_back({file.path, include.line, "include-root",
                             fmt::format("\"{}\" does not begin with a folder of the tree; include "
                                         "from the repository's root",
                                         include.path)});
      } else if (*rank > *own_rank) {
        findings->push_back({file.path, include.line, "include-direction",
                             fmt::format("{}/ must not use {}/, which stands above it; move the "
                                         "code up, or what it needs down (ARCHITECTURE.md)",
                                         file.folder(), folder)});
      } else if (*rank != *own_rank &&
                 std::count(include.path.begin(), include.path.end(), '/') > 1) {
        findings->push_back({file.path, include.line, "include-private",
                             fmt::format("\"{}\" is private to {}/; use one of the headers "
                                         "directly in {}/",
                                         include.path, folder, folder)});
      }
    }
  }
}

void CheckIncludeGuards(const SourceTree& tree, Findings* findings) {
  for (const SourceFile& file : tree.files) {
    if (!file.is_header()) continue;
    const std::string guard = GuardOf(file.path);
    std::vector<std::string_view> directives;
    for (const std::string& line : file.raw) {
      if (line.starts_with("#")) directives.push_back(line);
    }
    const bool guarded = directives.size() >= 3 && directives[0] == "#ifndef " + guard &&
                         directives[1] == "#define " + guard &&
                         directives.back() == "#endif  // " + guard;
    if (!guarded) {
      findings->push_back({file.path, 1, "include-guard",
                           fmt::format("begin with #ifndef and #define {0}, end with \"#endif  // "
                                       "{0}\"",
                                       guard)});
    }
  }
}

void CheckRestrictedHeaders(const SourceTree& tree, Findings* findings) {
  static const Pattern machine(R"(^(\w*intrin|arm_neon|arm_sve|cuda\w*|cooperative_groups)\.h$)");
  const SourceFile* cli11_user = nullptr;
  for (const SourceFile& file : tree.files) {
    if (file.language != Language::kCpp) continue;
    const bool is_public =
        file.is_header() && std::count(file.path.begin(), file.path.end(), '/') == 1;
    for (const Include& include : IncludesOf(file)) {
      if (is_public && machine.Matches(include.path)) {
        findings->push_back({file.path, include.line, "machine-header",
                             fmt::format("<{}> in a public header; keep types of one machine in a "
                                         ".cc or in a header deeper than {}/",
                                         include.path, file.folder())});
      }
      if (!include.path.starts_with("CLI/")) continue;
      if (cli11_user != nullptr && cli11_user != &file) {
        findings->push_back({file.path, include.line, "one-cli11",
                             fmt::format("{} includes CLI11 already, and it costs seconds a file; "
                                         "describe the option there (ci/lockstep/command.h)",
                                         cli11_user->path)});
      }
      cli11_user = &file;
    }
  }
}

}  // namespace lockstep::tidy
