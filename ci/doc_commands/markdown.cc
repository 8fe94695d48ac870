#include "ci/doc_commands/markdown.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "caches/file_io.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::string_view WithoutComment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\\') {
      ++i;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return line.substr(0, i);
    }
  }
  return line;
}

// The code that is the whole first cell of a table's row, if people could type it here.
std::string_view CommandOfRow(std::string_view line) {
  constexpr std::string_view kBegin = "| `", kEnd = "` |";
  if (!line.starts_with(kBegin)) return {};
  line.remove_prefix(kBegin.size());
  const size_t end = line.find('`');
  if (end == std::string_view::npos || !line.substr(end).starts_with(kEnd)) return {};
  const std::string_view code = line.substr(0, end);
  const bool here = code.starts_with("ci/") || code.starts_with("build/gate/");
  return here && !code.ends_with('/') ? code : std::string_view();
}

// What stands between the fences that the reader is inside of.
enum class Block { kNone, kShell, kOther };

class PageReader {
 public:
  explicit PageReader(const std::string& page) : page_(page) {}

  void Line(std::string_view line) {
    ++number_;
    const std::string_view words = Trimmed(line);
    if (words.starts_with("```")) {
      Fence(Trimmed(words.substr(3)));
    } else if (block_ == Block::kShell || !pending_.text.empty()) {
      Shell(words);
    } else if (block_ == Block::kOther && words.starts_with("$ ")) {
      Shell(Trimmed(words.substr(2)));
    } else if (const std::string_view command = CommandOfRow(line);
               block_ == Block::kNone && !command.empty()) {
      commands_.push_back({.page = page_, .line = number_, .text = std::string(command)});
    }
  }

  std::vector<DocCommand> Take() { return std::move(commands_); }

 private:
  void Fence(std::string_view language) {
    if (!pending_.text.empty()) commands_.push_back(std::exchange(pending_, {}));
    if (block_ != Block::kNone) {
      block_ = Block::kNone;
    } else {
      block_ = language == "sh" || language == "bash" ? Block::kShell : Block::kOther;
    }
  }

  void Shell(std::string_view line) {
    std::string_view words = Trimmed(WithoutComment(line));
    const bool goes_on = words.ends_with('\\');
    if (goes_on) words = Trimmed(words.substr(0, words.size() - 1));
    if (words.empty() && pending_.text.empty()) return;
    if (pending_.text.empty()) {
      pending_ = {.page = page_, .line = number_, .text = std::string(words)};
    } else {
      pending_.text += ' ';
      pending_.text += words;
    }
    if (!goes_on) commands_.push_back(std::exchange(pending_, {}));
  }

  std::string page_;
  int number_ = 0;
  Block block_ = Block::kNone;
  DocCommand pending_;  // the one whose next line is awaited; without text when there is none
  std::vector<DocCommand> commands_;
};

bool IsSkipped(const std::string& folder) {
  return folder == "build" || (folder.starts_with('.') && folder != ".github");
}

}  // namespace

std::vector<DocCommand> CommandsOf(const std::string& page, std::string_view text) {
  PageReader reader(page);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    reader.Line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.Take();
}

std::vector<DocCommand> CommandsBelow(const std::string& root) {
  std::vector<std::string> pages;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    if (entry->is_directory() && IsSkipped(entry->path().filename())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && entry->path().extension() == ".md") {
      pages.push_back(fs::relative(entry->path(), root).string());
    }
  }
  std::ranges::sort(pages);
  std::vector<DocCommand> commands;
  for (const std::string& page : pages) {
    const auto found = CommandsOf(page, ReadWholeTextFile((fs::path(root) / page).string()));
    commands.insert(commands.end(), found.begin(), found.end());
  }
  return commands;
}

}  // namespace lockstep
