#include <fmt/format.h>

#include <map>
#include <string>

#include "ci/tidy/pattern.h"
#include "ci/tidy/rules.h"

namespace lockstep::tidy {
namespace {

// Where a type is defined.
struct Definition {
  std::string path;
  size_t line = 0;
};

// The types that a file defines at namespace scope, by qualified name. What stands in an unnamed
// namespace, or in another type, is nobody else's.
std::map<std::string, Definition> TypesOf(const SourceFile& file) {
  static const Pattern opening(R"(^namespace(?: ([\w:]+))? \{)");
  static const Pattern type(R"(^(?:struct|class|enum class|enum|union)\s+(\w+)(?![\w:])[^;]*\{)");
  std::map<std::string, Definition> types;
  std::vector<std::string> namespaces;
  for (size_t i = 0; i < file.code.size(); ++i) {
    const std::string& line = file.code[i];
    if (const auto opened = opening.Find(line); !opened.empty()) {
      namespaces.emplace_back(opened.size() > 1 ? opened[1] : std::string_view());
      continue;
    }
    if (line.find_first_not_of(" }") == line.npos && line.starts_with('}')) {
      if (!namespaces.empty()) namespaces.pop_back();
      continue;
    }
    const auto defined = type.Find(line);
    if (defined.empty() || namespaces.empty()) continue;
    std::string name;
    bool shared = true;
    for (const std::string& part : namespaces) {
      shared = shared && !part.empty();
      name += part + "::";
    }
    if (shared) types.try_emplace(name + std::string(defined[1]), Definition{file.path, i + 1});
  }
  return types;
}

}  // namespace

void CheckTypeNames(const SourceTree& tree, Findings* findings) {
  std::map<std::string, Definition> seen;
  for (const SourceFile& file : tree.files) {
    if (file.language != Language::kCpp || file.is_test()) continue;
    for (const auto& [name, definition] : TypesOf(file)) {
      const auto [first, is_new] = seen.try_emplace(name, definition);
      if (is_new) continue;
      findings->push_back({definition.path, definition.line, "one-definition",
                           fmt::format("{} is defined in {} too; a program has one of a name", name,
                                       first->second.path)});
    }
  }
}

}  // namespace lockstep::tidy
