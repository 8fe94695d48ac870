#include "ci/doc_commands/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <utility>

#include "caches/file_io.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

template <typename Visit>
void ForEachLine(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Text of a manual page without the marks of roff.
std::string Plain(std::string_view roff) {
  std::string text;
  for (size_t i = 0; i < roff.size(); ++i) {
    if (roff[i] == '\\' && i + 1 < roff.size()) {
      ++i;
      text += roff[i] == 'e' ? '\\' : roff[i];
    } else {
      text += roff[i];
    }
  }
  return text;
}

// The first two cells of each row of the page's tables whose first cell has code in it: that code,
// and the second cell.
std::map<std::string, std::string> RowsOf(const std::string& text) {
  static const std::regex row(R"(^\| \[?`([^`]+)`[^|]*\| ([^|]*) \|)", std::regex::multiline);
  std::map<std::string, std::string> rows;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), row); it != std::sregex_iterator();
       ++it) {
    rows.emplace((*it)[1], (*it)[2]);
  }
  return rows;
}

void CheckCommands(const std::map<std::string, std::string>& rows, const ReferenceNeeds& needs,
                   std::vector<std::string>* faults) {
  for (const auto& [name, summary] : needs.commands) {
    const auto row = rows.find(name);
    if (row == rows.end() || row->second != summary) {
      faults->push_back(fmt::format("{} '| `{}` | {} |'",
                                    row == rows.end() ? "there is no row" : "a row should be", name,
                                    summary));
    }
  }
  for (const auto& [name, what] : rows) {
    if (name.starts_with("lockstep ") && !needs.commands.contains(name)) {
      faults->push_back(fmt::format("the program has no command '{}'", name));
    }
  }
}

void CheckScripts(const std::map<std::string, std::string>& rows, const ReferenceNeeds& needs,
                  std::vector<std::string>* faults) {
  for (const std::string& script : needs.scripts) {
    if (!rows.contains(script)) faults->push_back(fmt::format("there is no row of '{}'", script));
  }
}

// Links to the outside and within the page are not looked at.
void CheckLinks(const std::string& text, const fs::path& folder, std::vector<std::string>* faults) {
  static const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), link); it != std::sregex_iterator();
       ++it) {
    if (!fs::exists(folder / (*it)[1].str())) {
      faults->push_back(fmt::format("there is no '{}'", (*it)[1].str()));
    }
  }
}

}  // namespace

std::map<std::string, std::string> CommandsOfManual(std::string_view manual) {
  constexpr std::string_view kHead = ".SS ";
  std::map<std::string, std::string> commands;
  std::string name;
  ForEachLine(manual, [&](std::string_view line) {
    if (!name.empty()) {
      std::string summary = Plain(line);
      if (summary.ends_with('.')) summary.pop_back();
      commands.emplace(std::exchange(name, {}), std::move(summary));
    } else if (line.starts_with(kHead)) {
      name = Plain(line.substr(kHead.size()));
    }
  });
  return commands;
}

std::set<std::string> ScriptsBelow(const std::string& root, const std::set<std::string>& folders) {
  std::set<std::string> scripts;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
      if (entry.is_regular_file() && ReadWholeTextFile(entry.path().string()).starts_with("#!")) {
        scripts.insert(fs::relative(entry.path(), root).string());
      }
    }
  }
  return scripts;
}

std::set<std::string> KeysIn(std::string_view source) {
  static const std::regex key(
      R"re("((?:attention|rope|general|tokenizer|adapter|split)\.[a-z_.]+)")re");
  const std::string text(source);
  std::set<std::string> keys;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), key); it != std::sregex_iterator();
       ++it) {
    keys.insert((*it)[1]);
  }
  return keys;
}

std::vector<std::string> ReferenceFaults(std::string_view text, const std::string& page,
                                         const std::string& root, const ReferenceNeeds& needs) {
  const std::string words(text);
  const auto rows = RowsOf(words);
  std::vector<std::string> faults;
  CheckCommands(rows, needs, &faults);
  CheckScripts(rows, needs, &faults);
  for (const std::string& key : needs.keys) {
    if (words.find('`' + key + '`') == std::string::npos) {
      faults.push_back(fmt::format("the metadata key '{}' is not named", key));
    }
  }
  CheckLinks(words, (fs::path(root) / page).parent_path(), &faults);
  return faults;
}

}  // namespace lockstep
