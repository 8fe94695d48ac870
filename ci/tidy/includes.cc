#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

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

// "ci" uses "golden", and the line that says so.
using Uses = std::map<std::pair<std::string, std::string>, size_t>;

// Who includes a header of whom, as far as the folders' order allows it.
Uses UsesOf(const SourceTree& tree) {
  Uses uses;
  for (const SourceFile& file : tree.files) {
    const auto own_rank = RankOf(file.folder());
    if (file.language != Language::kCpp || !own_rank) continue;
    for (const Include& include : IncludesOf(file)) {
      const std::string_view folder = include.path.substr(0, include.path.find('/'));
      const auto rank = RankOf(folder);
      if (!include.quoted || !rank || *rank >= *own_rank) continue;
      uses.emplace(std::pair(file.folder(), folder), include.line);
    }
  }
  return uses;
}

// Lines like "  ci --> golden".
Uses ArrowsOf(const SourceFile& page) {
  static const Pattern arrow(R"(^\s*(\w+) --> (\w+)$)");
  Uses arrows;
  for (size_t i = 0; i < page.raw.size(); ++i) {
    const auto groups = arrow.Find(page.raw[i]);
    if (!groups.empty()) arrows.emplace(std::pair(groups[1], groups[2]), i + 1);
  }
  return arrows;
}

// Whether arrows lead from one to the other. REQUIRES: each is a use, so that there is no cycle.
bool Leads(const Uses& arrows, const std::string& from, const std::string& to) {
  return std::ranges::any_of(arrows, [&](const auto& arrow) {
    const auto& [begin, end] = arrow.first;
    return begin == from && (end == to || Leads(arrows, end, to));
  });
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

void CheckFolderPicture(const SourceTree& tree, Findings* findings) {
  const SourceFile* page = tree.Find("ARCHITECTURE.md");
  if (page == nullptr) return;
  const Uses uses = UsesOf(tree);
  Uses arrows = ArrowsOf(*page);
  for (auto arrow = arrows.begin(); arrow != arrows.end();) {
    const auto& [from, to] = arrow->first;
    if (uses.contains(arrow->first)) {
      ++arrow;
      continue;
    }
    findings->push_back(
        {page->path, arrow->second, "folder-picture",
         fmt::format("no file of {}/ includes a header of {}/; remove the arrow", from, to)});
    arrow = arrows.erase(arrow);
  }
  for (const auto& [use, line] : uses) {
    const auto& [from, to] = use;
    if (Leads(arrows, from, to)) continue;
    findings->push_back(
        {page->path, 0, "folder-picture",
         fmt::format("{0}/ uses {1}/, and no arrow leads there; add \"{0} --> {1}\" "
                     "to the picture",
                     from, to)});
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
