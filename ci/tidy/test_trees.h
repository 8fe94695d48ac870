// Small trees for the tests of tidy's rules.
#ifndef LOCKSTEP_CI_TIDY_TEST_TREES_H_
#define LOCKSTEP_CI_TIDY_TEST_TREES_H_

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "ci/tidy/rules.h"

namespace lockstep::tidy {

inline SourceTree TreeOf(
    std::initializer_list<std::pair<std::string_view, std::string_view>> files) {
  SourceTree tree;
  for (const auto& [path, text] : files) {
    tree.files.push_back(MakeSourceFile(std::string(path), text));
  }
  return tree;
}

// The findings of one rule's function as "path:line rule", one a line; "" for a clean tree.
inline std::string Places(void (*rule)(const SourceTree&, Findings*), const SourceTree& tree) {
  Findings findings;
  rule(tree, &findings);
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{}:{} {}\n", finding.path, finding.line, finding.rule);
  }
  return text;
}

}  // namespace lockstep::tidy

#endif  // LOCKSTEP_CI_TIDY_TEST_TREES_H_
