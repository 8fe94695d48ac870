// The result of `lockstep conform` for other programs, and as one self-contained HTML page.
#ifndef LOCKSTEP_CI_LOCKSTEP_CONFORM_PAGE_H_
#define LOCKSTEP_CI_LOCKSTEP_CONFORM_PAGE_H_

#include <string>
#include <string_view>

#include "properties/conform.h"

namespace lockstep::cli {

// What stands around the clauses.
struct ConformText {
  std::string plugin;  // its name: anything may stand in it
  std::string replay;  // the command that runs a counterexample again
  std::string repeat;  // the command that runs everything again
};

// "pass", "FAIL", "unsupported, as declared", "not run".
std::string_view ConformVerdictName(ClauseResult::Verdict verdict);

// One sentence: "CONFORMS: ...".
std::string ConformSentence(const ConformResult& result);

std::string ConformJson(const ConformResult& result, const ConformText& text);

// No script, no reference to another resource; follows the reader's light or dark theme.
std::string ConformHtml(const ConformResult& result, const ConformText& text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_CONFORM_PAGE_H_
