#include "ci/doc_commands/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "caches/error.h"
#include "golden/toml_table.h"

namespace lockstep {
namespace {

constexpr std::string_view kRemedy = "ci/doc_commands/rules.h gives the form";

DocRule ReadRule(TomlTable table) {
  DocRule rule{.text = table.Text("text")};
  if (table.Find("replace") != nullptr) {
    const std::vector<std::string> words = table.Texts("replace");
    if (words.size() % 2 != 0) table.Fail(table.Find("replace"), "'replace' is no list of pairs");
    for (size_t i = 0; i < words.size(); i += 2) rule.replace.emplace_back(words[i], words[i + 1]);
  }
  if (table.Find("exit") != nullptr) {
    rule.exit_code = table.Number("exit", {.low = 0, .high = 255});
  }
  if (table.Find("prints") != nullptr) rule.prints = table.Text("prints");
  if (table.Find("test") != nullptr) rule.test = table.Text("test");
  if (table.Find("untried") != nullptr) rule.untried = table.Text("untried");
  table.NothingElse();
  const bool tried = !rule.replace.empty() || rule.exit_code != 0 || !rule.prints.empty();
  if (int{tried} + int{!rule.test.empty()} + int{!rule.untried.empty()} != 1) {
    table.Fail(nullptr, "says nothing, or more than one of how it is run, its test, and why not");
  }
  return rule;
}

// Whether `text` is the whole command or its first words.
bool Fits(const std::string& text, const std::string& command) {
  return command.starts_with(text) &&
         (command.size() == text.size() || command[text.size()] == ' ');
}

[[noreturn]] void Fail(const DocCommand& command, const std::string& what) {
  throw Error({fmt::format("{}:{}", command.page, command.line), what,
               "correct its rule in docs/commands.toml"});
}

std::string Replaced(const DocCommand& command, const DocRule& rule) {
  std::string text = command.text;
  for (const auto& [there, instead] : rule.replace) {
    const size_t at = text.find(there);
    if (at == std::string::npos) Fail(command, fmt::format("'{}' does not have '{}'", text, there));
    text.replace(at, there.size(), instead);
  }
  return text;
}

void CheckTest(const DocCommand& command, const DocRule& rule,
               const std::map<std::string, std::string>& tests) {
  const auto test = tests.find(rule.test);
  if (test == tests.end()) Fail(command, fmt::format("there is no test '{}'", rule.test));
  const std::string program = command.text.substr(0, command.text.find(' '));
  if (test->second.find("/" + program) == std::string::npos) {
    Fail(command, fmt::format("the test '{}' runs '{}', not {}", rule.test, test->second, program));
  }
}

}  // namespace

DocRules ParseDocRules(std::string_view text, std::string_view where) {
  const toml::table parsed = ParseToml(text, where);
  TomlTable table(parsed, where, kRemedy);
  DocRules rules;
  if (table.Find("setup") != nullptr) rules.setup = table.Texts("setup");
  for (TomlTable& rule : table.Tables("command")) rules.rules.push_back(ReadRule(rule));
  table.NothingElse();
  return rules;
}

std::vector<DocTrial> PlanTrials(std::span<const DocCommand> commands, const DocRules& rules,
                                 const std::map<std::string, std::string>& tests) {
  std::vector<bool> used(rules.rules.size());
  std::vector<DocTrial> trials;
  for (const DocCommand& command : commands) {
    DocTrial trial{.command = command, .rule = {.text = command.text}, .run = command.text};
    size_t longest = 0;
    for (size_t i = 0; i < rules.rules.size(); ++i) {
      const DocRule& rule = rules.rules[i];
      if (rule.text.size() <= longest || !Fits(rule.text, command.text)) continue;
      longest = rule.text.size();
      trial.rule = rule;
      used[i] = true;
    }
    if (!trial.rule.test.empty()) CheckTest(command, trial.rule, tests);
    const bool runs = trial.rule.test.empty() && trial.rule.untried.empty();
    trial.run = runs ? Replaced(command, trial.rule) : "";
    trials.push_back(std::move(trial));
  }
  if (const auto idle = std::ranges::find(used, false); idle != used.end()) {
    throw Error({"docs/commands.toml",
                 fmt::format("no page has the command '{}'",
                             rules.rules[static_cast<size_t>(idle - used.begin())].text),
                 "remove the rule, or give it the words that the page has now"});
  }
  return trials;
}

}  // namespace lockstep
