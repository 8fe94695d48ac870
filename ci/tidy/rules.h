// The rules that the tree keeps. Each finding says where, which rule, and what to do instead.
#ifndef LOCKSTEP_CI_TIDY_RULES_H_
#define LOCKSTEP_CI_TIDY_RULES_H_

#include <string>
#include <string_view>
#include <vector>

#include "ci/tidy/tree.h"

namespace lockstep::tidy {

struct Finding {
  std::string path;
  size_t line = 0;  // from 1; 0: the file as a whole
  std::string rule;
  std::string message;
};

using Findings = std::vector<Finding>;

// Includes: folder order, private headers, guards, heavy and machine-specific headers.
void CheckIncludeDirections(const SourceTree& tree, Findings* findings);
// The picture of the folders in ARCHITECTURE.md, whose arrows say who uses whom.
void CheckFolderPicture(const SourceTree& tree, Findings* findings);
void CheckIncludeGuards(const SourceTree& tree, Findings* findings);
void CheckRestrictedHeaders(const SourceTree& tree, Findings* findings);

// Words that must not stand in the tree, each with its replacement.
void CheckBannedWords(const SourceTree& tree, Findings* findings);
void CheckUnorderedIteration(const SourceTree& tree, Findings* findings);

// Types at namespace scope: two of one name are an error that no linker has to notice.
void CheckTypeNames(const SourceTree& tree, Findings* findings);

// Sizes and blanks.
void CheckLines(const SourceTree& tree, Findings* findings);
void CheckFileLength(const SourceTree& tree, Findings* findings);
void CheckFunctionLength(const SourceTree& tree, Findings* findings);

// What has to be listed somewhere.
void CheckSourcesAreListed(const SourceTree& tree, Findings* findings);
void CheckHeadersAreIncluded(const SourceTree& tree, Findings* findings);
void CheckTopLevel(const SourceTree& tree, Findings* findings);
void CheckBuildOptions(const SourceTree& tree, Findings* findings);
void CheckContractClauses(const SourceTree& tree, Findings* findings);

// Workflows and actions of GitHub, and jobs of GitLab: workflow_lint.h.
void CheckWorkflows(const SourceTree& tree, Findings* findings);

// All of them, sorted by place.
Findings CheckTree(const SourceTree& tree);

// Limits that the messages and the tests share.
inline constexpr size_t kColumnsMax = 100;
inline constexpr size_t kFileLinesMax = 400;
inline constexpr size_t kFunctionLinesMax = 70;
inline constexpr size_t kBuildOptionsMax = 6;

// The folders of ARCHITECTURE.md, lowest first. A file uses its own folder and those before it.
inline constexpr std::string_view kFolders[] = {"caches", "engine",  "oracle", "properties",
                                                "golden", "reports", "ci"};

}  // namespace lockstep::tidy

#endif  // LOCKSTEP_CI_TIDY_RULES_H_
