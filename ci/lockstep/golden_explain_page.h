// Explanations of golden files for other programs, and as one self-contained HTML page.
#ifndef LOCKSTEP_CI_LOCKSTEP_GOLDEN_EXPLAIN_PAGE_H_
#define LOCKSTEP_CI_LOCKSTEP_GOLDEN_EXPLAIN_PAGE_H_

#include <span>
#include <string>

#include "golden/explain.h"

namespace lockstep::cli {

// An object with "holds", "command" and "explanations", one for each golden file.
std::string ExplanationsJson(std::span<const Explanation> explanations, const std::string& repeat);

// The same for people: where each golden first differs on a map of layers and stages, both values,
// the cause. No script, no reference to another resource; follows the reader's theme.
std::string ExplanationsHtml(std::span<const Explanation> explanations, const std::string& repeat);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_GOLDEN_EXPLAIN_PAGE_H_
