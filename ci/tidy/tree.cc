#include "ci/tidy/tree.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "caches/error.h"

namespace lockstep::tidy {
namespace {

namespace fs = std::filesystem;

bool EndsWithAny(std::string_view text, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](std::string_view suffix) { return text.ends_with(suffix); });
}

Language LanguageOf(std::string_view path, std::string_view text) {
  if (EndsWithAny(path, {".h", ".cc", ".cu", ".cuh"})) return Language::kCpp;
  if (EndsWithAny(path, {"CMakeLists.txt", ".cmake"})) return Language::kCMake;
  if (path.ends_with(".sh") || text.starts_with("#!")) return Language::kShell;
  return Language::kOther;
}

std::vector<std::string> SplitLines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether text[quote] separates digits of a number (1'000) and opens no character literal.
bool IsDigitSeparator(std::string_view text, size_t quote) {
  size_t begin = quote;
  while (begin > 0 && (IsWordChar(text[begin - 1]) || text[begin - 1] == '\'')) --begin;
  return begin < quote && std::isdigit(static_cast<unsigned char>(text[begin])) != 0;
}

// The end (one past the closing quote) of the literal that opens at text[open].
size_t EndOfLiteral(std::string_view text, size_t open) {
  const char quote = text[open];
  if (quote == '"' && open > 0 && text[open - 1] == 'R') {
    const size_t paren = text.find('(', open);
    if (paren == std::string_view::npos) return text.size();
    std::string closing(")");
    closing.append(text.substr(open + 1, paren - open - 1)).push_back('"');
    const size_t end = text.find(closing, paren);
    return end == std::string_view::npos ? text.size() : end + closing.size();
  }
  for (size_t i = open + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

// CMake and shell: a '#' at a word's start comments the rest of its line.
std::string BlankHashComments(std::string_view text) {
  std::string out(text);
  bool comment = false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '\n') comment = false;
    if (out[i] == '#' && (i == 0 || std::isspace(static_cast<unsigned char>(out[i - 1])) != 0)) {
      comment = true;
    }
    if (comment) out[i] = ' ';
  }
  return out;
}

// What git tracks or would track, or nothing where git is absent or refuses.
std::vector<std::string> ListByGit(const std::string& root) {
  std::string quoted = "'";
  for (char c : root) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  quoted += "'";
  const std::string command =
      "git -C " + quoted + " ls-files -z --cached --others --exclude-standard 2>/dev/null";
  std::vector<std::string> paths;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return paths;
  std::string path;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    if (c != '\0') {
      path.push_back(static_cast<char>(c));
    } else {
      paths.push_back(std::move(path));
      path.clear();
    }
  }
  if (::pclose(pipe) != 0) paths.clear();
  return paths;
}

std::vector<std::string> ListByWalk(const fs::path& root) {
  constexpr std::array<std::string_view, 3> kHiddenSources = {".ci", ".clusterfuzzlite", ".github"};
  std::vector<std::string> paths;
  auto it = fs::recursive_directory_iterator(root);
  for (; it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      const bool hidden =
          name.starts_with('.') &&
          std::find(kHiddenSources.begin(), kHiddenSources.end(), name) == kHiddenSources.end();
      if (hidden || name == "build") it.disable_recursion_pending();
    } else if (name != ".git") {
      paths.push_back(fs::relative(it->path(), root).generic_string());
    }
  }
  return paths;
}

}  // namespace

std::string_view SourceFile::folder() const {
  const size_t slash = path.find('/');
  return slash == std::string::npos ? std::string_view() : std::string_view(path).substr(0, slash);
}

bool SourceFile::is_header() const { return EndsWithAny(path, {".h", ".cuh"}); }
bool SourceFile::is_source() const { return EndsWithAny(path, {".cc", ".cu"}); }
bool SourceFile::is_test() const { return EndsWithAny(path, {"_test.cc", "_test.cu"}); }

const SourceFile* SourceTree::Find(std::string_view path) const {
  const auto it = std::find_if(files.begin(), files.end(),
                               [&](const SourceFile& file) { return file.path == path; });
  return it == files.end() ? nullptr : &*it;
}

SourceFile MakeSourceFile(std::string path, std::string_view text) {
  SourceFile file;
  file.language = LanguageOf(path, text);
  file.path = std::move(path);
  file.raw = SplitLines(text);
  switch (file.language) {
    case Language::kCpp:
      file.code = SplitLines(BlankCpp(text));
      break;
    case Language::kCMake:
    case Language::kShell:
      file.code = SplitLines(BlankHashComments(text));
      break;
    case Language::kOther:
      file.code = file.raw;
      break;
  }
  return file;
}

SourceTree ReadTree(const std::string& root) {
  if (!fs::is_directory(root)) {
    throw Error({root, "is no folder", "name the root of a checkout of lockstep"});
  }
  std::vector<std::string> paths = ListByGit(root);
  if (paths.empty()) paths = ListByWalk(root);
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());

  SourceTree tree;
  for (std::string& path : paths) {
    std::ifstream in(fs::path(root) / path, std::ios::binary);
    if (!in) continue;  // tracked by git and deleted on disk
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    // A file with a zero byte is data: only its path matters.
    const bool binary = text.find('\0') != std::string::npos;
    const fs::perms permissions = fs::status(fs::path(root) / path).permissions();
    SourceFile file = MakeSourceFile(std::move(path), binary ? std::string_view() : text);
    file.is_executable = (permissions & fs::perms::owner_exec) != fs::perms::none;
    tree.files.push_back(std::move(file));
  }
  return tree;
}

std::string BlankCpp(std::string_view text) {
  std::string out(text);
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, out.size()); ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  };
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    size_t end = i + 1;
    if (rest.starts_with("//")) {
      end = std::min(text.find('\n', i), text.size());
      blank(i, end);
    } else if (rest.starts_with("/*")) {
      const size_t close = text.find("*/", i + 2);
      end = close == std::string_view::npos ? text.size() : close + 2;
      blank(i, end);
    } else if (rest[0] == '"' || (rest[0] == '\'' && !IsDigitSeparator(text, i))) {
      end = EndOfLiteral(text, i);
      blank(i + 1, end - 1);  // the quotes stay
    }
    i = end;
  }
  return out;
}

std::string JoinLines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).push_back('\n');
  return text;
}

}  // namespace lockstep::tidy
