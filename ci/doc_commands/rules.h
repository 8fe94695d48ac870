// How the commands of the documentation are tried: docs/commands.toml.
//
//   setup = ["lockstep synth --preset ... --out model.gguf", ...]
//     What makes the files that the pages speak of. Run once, in order, before the rest.
//
//   [[command]]
//   text = "lockstep fuzz --seconds 600"   # it or its beginning, as a page has it
//   replace = ["--seconds 600", "--seconds 1"]  # pairs: what stands there, what is run instead
//   exit = 1              # the exit code that it has to have; 0 when left out
//   prints = "FOUND"      # what it has to print
//   test = "fuzz-corpus"  # instead of all this: the entry of ctest that runs the same program
//   untried = "..."       # or: the reason why nothing runs it
//
// A command without a rule is run as it stands and has to end with 0. A rule that no command has is
// an error: it would be a wish that nobody reads.
#ifndef LOCKSTEP_CI_DOC_COMMANDS_RULES_H_
#define LOCKSTEP_CI_DOC_COMMANDS_RULES_H_

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ci/doc_commands/markdown.h"

namespace lockstep {

struct DocRule {
  std::string text = {};
  std::vector<std::pair<std::string, std::string>> replace = {};
  int exit_code = 0;
  std::string prints = {};
  std::string test = {};
  std::string untried = {};
};

struct DocRules {
  std::vector<std::string> setup = {};
  std::vector<DocRule> rules = {};
};

// Throws Error, with `where` and the line, for what is not of the form above.
DocRules ParseDocRules(std::string_view toml, std::string_view where);

// What is to be done about one command.
struct DocTrial {
  DocCommand command;
  DocRule rule;     // the longest that fits; none: a rule with nothing but its text
  std::string run;  // empty: nothing, for the rule names a test or a reason
};

// `tests`: the command of each entry of ctest by name. Throws Error for a rule that no command has,
// for words to replace that are not there, and for a test that does not exist or does not run the
// program that the command names.
std::vector<DocTrial> PlanTrials(std::span<const DocCommand> commands, const DocRules& rules,
                                 const std::map<std::string, std::string>& tests);

}  // namespace lockstep

#endif  // LOCKSTEP_CI_DOC_COMMANDS_RULES_H_
