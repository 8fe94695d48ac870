// doc_commands: runs every command of the documentation as docs/commands.toml says
// (ci/doc_commands/rules.h), and prints a table. Exit code 0 when all do what they should, 1 when
// not, 2 when that cannot be found out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/doc_commands/markdown.h"
#include "ci/doc_commands/rules.h"
#include "ci/doc_commands/trial.h"

namespace lockstep {
namespace {

void Row(const std::string& verdict, double seconds, const std::string& where,
         const std::string& command) {
  fmt::print("{:<8} {:>6.1f}  {:<28} {}\n", verdict, seconds, where, command);
  std::fflush(stdout);
}

// How the log of a command that failed ends.
void PrintEnd(const std::string& log) {
  const std::string text = ReadWholeTextFile(log);
  constexpr size_t kCharacters = 1500;
  fmt::print("{}\n", text.substr(text.size() - std::min(text.size(), kCharacters)));
}

// One run for each text: a page may say again what another one says.
int Check(const std::string& root, const std::string& bin, const std::string& folder) {
  const std::string rules_path = root + "/docs/commands.toml";
  const DocRules rules = ParseDocRules(ReadWholeTextFile(rules_path), "docs/commands.toml");
  const auto trials = PlanTrials(CommandsBelow(root), rules, TestCommands(bin));
  const DocScratch scratch(folder, root, bin);
  int ran = 0, failed = 0, tested = 0, untried = 0;
  const auto run = [&](const std::string& line, const DocRule& rule, const std::string& where) {
    const DocScratch::End end = scratch.Run(line, rule);
    Row(end.fault.empty() ? "holds" : "FAILS", end.seconds, where, line);
    ++ran;
    if (end.fault.empty()) return;
    ++failed;
    fmt::print("{}: {}\n", where, end.fault);
    PrintEnd(end.log);
  };
  for (const std::string& line : rules.setup) run(line, {}, "docs/commands.toml");
  std::set<std::string> known;
  for (const DocTrial& trial : trials) {
    const std::string where = fmt::format("{}:{}", trial.command.page, trial.command.line);
    if (!known.insert(trial.command.text).second) continue;
    if (!trial.rule.test.empty()) {
      ++tested;
      Row("test", 0, where, fmt::format("{}: {}", trial.command.text, trial.rule.test));
    } else if (!trial.rule.untried.empty()) {
      ++untried;
      Row("untried", 0, where, fmt::format("{}: {}", trial.command.text, trial.rule.untried));
    } else {
      run(trial.run, trial.rule, where);
    }
  }
  fmt::print("{}: {} commands ran, {} failed; {} are run by other tests, {} by nothing\n",
             failed == 0 ? "HOLDS" : "FAILS", ran, failed, tested, untried);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: doc_commands ROOT BUILD_FOLDER SCRATCH_FOLDER\n");
    return 2;
  }
  try {
    return lockstep::Check(argv[1], argv[2], argv[3]);
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "doc_commands: error: {}\n", error.what());
    return 2;
  }
}
