// The commands that workflows start.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ci/tidy/pattern.h"
#include "ci/tidy/workflow_lint.h"

namespace lockstep::tidy {
namespace {

constexpr std::string_view kCommandRule = "workflow-command";

// What a bare machine needs before a script of the tree can run, and CMake, which is the same
// everywhere. All else is a script's, so that people can run and mend it.
constexpr std::string_view kPrograms[] = {"apt-get", "cmake", "git"};

// The commands of a line of shell, each as its words without quotes: what stands between &&, ||, ;,
// |, & and ends of lines. Whatever is more than that is no line but a script.
std::vector<std::vector<std::string>> CommandsOf(std::string_view text) {
  std::vector<std::vector<std::string>> commands(1);
  bool in_word = false;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::vector<std::string>& words = commands.back();
    const bool is_blank = quote == '\0' && (c == ' ' || c == '\t');
    const bool is_end = quote == '\0' && std::string_view("&|;\n").find(c) != std::string::npos;
    if (c == '\\' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;  // the line goes on
    } else if (is_blank || is_end) {
      in_word = false;
      if (is_end && !words.empty()) commands.emplace_back();
    } else if (!in_word && quote == '\0' && c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else {
      if (!in_word) words.emplace_back();
      in_word = true;
      if (quote == '\0' && (c == '"' || c == '\'')) {
        quote = c;
      } else if (c == quote) {
        quote = '\0';
      } else {
        words.back() += c;
      }
    }
  }
  if (commands.back().empty()) commands.pop_back();
  return commands;
}

// The path in the tree of what a command calls `program`, or "" for what is none.
std::string PathInTree(const std::string& program, const CommandFolders& folders) {
  bool starts_in_tree = false;
  for (const auto& [prefix, folder] : folders) {
    if (prefix.empty()) {
      starts_in_tree = true;
    } else if (program.starts_with(prefix)) {
      const std::filesystem::path path = folder + program.substr(prefix.size());
      return path.lexically_normal().generic_string();
    }
  }
  const bool is_elsewhere = program.starts_with('/') || program.find('$') != program.npos;
  if (!starts_in_tree || is_elsewhere || program.find('/') == program.npos) return "";
  return std::filesystem::path(program).lexically_normal().generic_string();
}

}  // namespace

std::vector<std::string> CheckCommands(WorkflowLint* lint, const YamlNode& at,
                                       std::string_view text, const CommandFolders& folders) {
  static const Pattern assignment(R"(^\w+=)");
  if (text.find("${{") != text.npos) {
    lint->Add(at, kCommandRule,
              "an expression in the text of a command, which then runs what others wrote; give it "
              "by 'env' and use \"$NAME\"");
    return {};
  }
  std::vector<std::string> scripts;
  for (const std::vector<std::string>& words : CommandsOf(text)) {
    const auto program = std::ranges::find_if(
        words, [](const std::string& word) { return !assignment.Matches(word); });
    if (program == words.end() || std::ranges::count(kPrograms, *program) != 0) continue;
    const std::string path = PathInTree(*program, folders);
    const SourceFile* script = lint->tree().Find(path);
    if (path.empty()) {
      lint->Add(at, kCommandRule,
                fmt::format("'{}' is no script of the tree; make a script of the step, below ci/, "
                            "that people can run too",
                            *program));
    } else if (script == nullptr) {
      lint->Add(at, kCommandRule, fmt::format("'{}' is not in the tree", path));
    } else if (!script->is_executable) {
      lint->Add(at, kCommandRule, fmt::format("'{0}' is not executable: chmod +x {0}", path));
    } else {
      scripts.push_back(path);
    }
  }
  return scripts;
}

}  // namespace lockstep::tidy
