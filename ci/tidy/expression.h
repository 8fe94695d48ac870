// The expressions of GitHub's workflows, ${{ github.ref }}: which names they use.
// Source: https://docs.github.com/en/actions/reference/workflows-and-actions/expressions
#ifndef LOCKSTEP_CI_TIDY_EXPRESSION_H_
#define LOCKSTEP_CI_TIDY_EXPRESSION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tidy {

struct Expression {
  struct Call {
    std::string function;
    size_t arguments = 0;
  };

  // steps.gate.outputs is three names; "*" stands where one is computed, or each is meant.
  std::vector<std::vector<std::string>> references;
  std::vector<Call> calls;
  std::string error;  // empty: it is well-formed
};

// `text` is what stands between ${{ and }}, or the whole of an `if`.
Expression ParseExpression(std::string_view text);

// What stands between each ${{ and }} of a text; nothing when one of them has no end.
std::optional<std::vector<std::string>> ExpressionsIn(std::string_view text);

}  // namespace lockstep::tidy

#endif  // LOCKSTEP_CI_TIDY_EXPRESSION_H_
