#include "ci/tidy/rules.h"

#include <algorithm>
#include <tuple>

namespace lockstep::tidy {

Findings CheckTree(const SourceTree& tree) {
  constexpr void (*kRules[])(const SourceTree&, Findings*) = {
      CheckIncludeDirections,  CheckIncludeGuards,      CheckRestrictedHeaders,
      CheckBannedWords,        CheckUnorderedIteration, CheckLines,
      CheckFileLength,         CheckFunctionLength,     CheckSourcesAreListed,
      CheckHeadersAreIncluded, CheckTopLevel,           CheckBuildOptions,
      CheckContractClauses,    CheckTypeNames,          CheckFolderPicture,
      CheckWorkflows,
  };
  Findings findings;
  for (const auto rule : kRules) rule(tree, &findings);
  std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.path, a.line, a.rule, a.message) <
           std::tie(b.path, b.line, b.rule, b.message);
  });
  return findings;
}

}  // namespace lockstep::tidy
