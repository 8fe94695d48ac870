// What is known around the place of the first difference, and what that says of its cause.
#ifndef LOCKSTEP_GOLDEN_EXPLAIN_PLACE_H_
#define LOCKSTEP_GOLDEN_EXPLAIN_PLACE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "golden/explain.h"
#include "golden/explain/runs.h"
#include "golden/mistakes.h"

namespace lockstep {

// Both sides. `old_run` has agreed with the golden up to the place where `exact`, and else before
// it; it may be the explained run itself.
struct ExplainedRuns {
  const ScenarioModel& model;
  const CacheSpec& spec;
  const ValuedRun& now;
  const ValuedRun& old_run;
  bool exact = false;
  // The rows of the place to the bit, where no run as a whole agreed.
  std::optional<std::vector<float>> old_rows = {};
  // Where the explained run itself holds the golden's rows, by operation and sequence: another fact
  // of the golden has the same hash, and still agrees.
  std::optional<std::pair<int32_t, int32_t>> same_rows = {};
};

// Fills the values, elements, side and cause of a stage that differs. `digest`: the golden's of
// these rows.
void ExplainStage(const ExplainedRuns& runs, const StageRowsAt& at, const std::string& digest,
                  Explanation* explanation);

// The same of the rows that a sequence holds after an operation.
void ExplainHeldRows(const ExplainedRuns& runs, Explanation* explanation);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_EXPLAIN_PLACE_H_
