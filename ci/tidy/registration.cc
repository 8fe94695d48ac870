#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "ci/tidy/pattern.h"
#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

constexpr std::string_view kTopLevelFiles[] = {
    ".clang-format",     ".clang-tidy",     ".gitignore", "ARCHITECTURE.md", "CMakeLists.txt",
    "CMakePresets.json", "CONTRIBUTING.md", "LICENSE",    "README.md"};
constexpr std::string_view kOtherFolders[] = {".ci", ".clusterfuzzlite", ".github", "docs"};

template <typename Range>
bool Contains(const Range& range, std::string_view value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

// Whether a CMakeLists.txt of the file's folder, or of one above it, names the file.
bool IsListed(const SourceTree& tree, std::string_view path) {
  for (const SourceFile& list : tree.files) {
    if (!list.path.ends_with("CMakeLists.txt")) continue;
    const std::string_view folder =
        std::string_view(list.path).substr(0, list.path.size() - sizeof("CMakeLists.txt") + 1);
    if (!path.starts_with(folder)) continue;
    const std::string_view name = path.substr(folder.size());
    for (const std::string& line : list.code) {
      for (size_t at = line.find(name); at != std::string::npos; at = line.find(name, at + 1)) {
        constexpr std::string_view kEnds = " \t()\"/}";
        const size_t after = at + name.size();
        const bool begins = at == 0 || kEnds.find(line[at - 1]) != std::string_view::npos;
        const bool ends =
            after == line.size() || (kEnds.find(line[after]) != std::string_view::npos);
        if (begins && ends) return true;
      }
    }
  }
  return false;
}

}  // namespace

void CheckSourcesAreListed(const SourceTree& tree, Findings* findings) {
  for (const SourceFile& file : tree.files) {
    if (!file.is_source() || IsListed(tree, file.path)) continue;
    if (file.is_test()) {
      findings->push_back(
          {file.path, 0, "unregistered-test",
           "never runs: list it in a lockstep_test of its folder's CMakeLists.txt"});
    } else {
      findings->push_back({file.path, 0, "unlisted-source",
                           "is not built: list it in its folder's CMakeLists.txt, or remove it"});
    }
  }
}

void CheckHeadersAreIncluded(const SourceTree& tree, Findings* findings) {
  static const Pattern include(R"(^\s*#\s*include\s*"([^"]+)\")");
  std::set<std::string, std::less<>> included;
  for (const SourceFile& file : tree.files) {
    if (file.language != Language::kCpp) continue;
    for (const std::string& line : file.raw) {
      const auto groups = include.Find(line);
      if (!groups.empty() && groups[1] != file.path) included.emplace(groups[1]);
    }
  }
  for (const SourceFile& file : tree.files) {
    if (file.is_header() && !included.contains(file.path) && !IsListed(tree, file.path)) {
      findings->push_back(
          {file.path, 0, "unused-header", "nobody includes it; use it or remove it"});
    }
  }
}

void CheckTopLevel(const SourceTree& tree, Findings* findings) {
  std::set<std::string_view> seen;
  for (const SourceFile& file : tree.files) {
    const std::string_view folder = file.folder();
    const bool allowed = folder.empty()
                             ? Contains(kTopLevelFiles, file.path)
                             : Contains(kFolders, folder) || Contains(kOtherFolders, folder);
    const std::string_view entry = folder.empty() ? std::string_view(file.path) : folder;
    if (allowed || !seen.insert(entry).second) continue;
    findings->push_back({std::string(entry), 0, "top-level",
                         "is no entry of ARCHITECTURE.md; put it into one of its folders"});
  }
}

void CheckBuildOptions(const SourceTree& tree, Findings* findings) {
  static const Pattern option(
      R"(^\s*option\s*\(\s*(\w+)|^\s*set\s*\(\s*(LOCKSTEP_\w+)[^)]*\bCACHE\b)");
  size_t count = 0;
  for (const SourceFile& file : tree.files) {
    if (file.language != Language::kCMake) continue;
    const std::string text = JoinLines(file.code);
    count += option.FindAll(text, 0).size();
  }
  if (count > kBuildOptionsMax) {
    findings->push_back({"CMakeLists.txt", 0, "build-options",
                         fmt::format("{} build options; {} at most, so that every combination is "
                                     "one that somebody tested",
                                     count, kBuildOptionsMax)});
  }
}

void CheckContractClauses(const SourceTree& tree, Findings* findings) {
  static const Pattern clause(R"(\*\*([A-Z][0-9]+)\*\*)");
  static const Pattern test(R"(^(?:TYPED_)?TEST(?:_[FP])?\s*\(([^)]*)\))");
  static const Pattern id(R"((?<![A-Z])[A-Z][0-9]+)");
  const SourceFile* contract = tree.Find("caches/CONTRACT.md");
  if (contract == nullptr) return;

  std::set<std::string, std::less<>> tested;
  for (const SourceFile& file : tree.files) {
    if (!file.is_test()) continue;
    const std::string text = JoinLines(file.code);
    for (const std::string_view names : test.FindAll(text, 1)) {
      for (const std::string_view found : id.FindAll(names, 0)) tested.emplace(found);
    }
  }
  for (size_t i = 0; i < contract->raw.size(); ++i) {
    for (const std::string_view found : clause.FindAll(contract->raw[i], 1)) {
      if (tested.contains(found)) continue;
      findings->push_back({contract->path, i + 1, "untested-clause",
                           fmt::format("no test's name has the clause {0}; name one after what it "
                                       "checks of it: TEST(..., {0}_...)",
                                       found)});
    }
  }
}

}  // namespace lockstep::tidy
