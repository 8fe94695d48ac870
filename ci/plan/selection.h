// Which parts of a plan a change affects.
#ifndef LOCKSTEP_CI_PLAN_SELECTION_H_
#define LOCKSTEP_CI_PLAN_SELECTION_H_

#include <string>
#include <string_view>
#include <vector>

#include "ci/plan/plan.h"

namespace lockstep {

struct Selected {
  const PlanPart* part = nullptr;
  bool runs = false;
  std::string reason;  // why it runs, or why not: a file and a pattern
};

// The first of the patterns of a plan that a path or the name of a test matches, or nullptr.
const std::string* FirstMatch(const std::vector<std::string>& patterns, const std::string& text);

// The parts of a tier in the plan's order. By `changed`, paths from the root of the repository,
// when `by_diff`: a part runs when a changed file matches one of its patterns, when it has none and
// a file is not ignored, and when a file matches no pattern of the plan at all, because nobody
// knows then what it affects. `plan` outlives what is returned.
std::vector<Selected> SelectParts(const Plan& plan, std::string_view tier, bool by_diff,
                                  const std::vector<std::string>& changed);

// Only those of `parts` that shard `index` of [1, count] runs: by their minutes, the longest first,
// each goes to the shard with the fewest. REQUIRES: 1 <= index <= count.
void KeepPartsOfShard(std::vector<Selected>* parts, int32_t index, int32_t count);

// What differs between the merge base of HEAD and `base`, and the working tree of the repository
// that the current folder is in; files that git does not know and does not ignore are among them.
// Throws Error when git cannot tell.
std::vector<std::string> ChangedFiles(const std::string& base);

// The commit that is checked out, or nothing outside of a repository.
std::string HeadCommit();

}  // namespace lockstep

#endif  // LOCKSTEP_CI_PLAN_SELECTION_H_
