// Runs the parts of a plan, one after the other, and judges each by what it did.
#ifndef LOCKSTEP_CI_PLAN_RUN_H_
#define LOCKSTEP_CI_PLAN_RUN_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ci/plan/plan.h"
#include "ci/plan/selection.h"

namespace lockstep {

enum class PartVerdict {
  kHolds,         // exit code 0, and the proof was printed
  kUnaffected,    // not selected: the reason says why
  kInconclusive,  // exit code 3, no proof, a limit was passed, or it could not be started
  kNotRun,        // the tier had no time left for it, or was interrupted
  kFailed,        // any other exit code, or a signal
};

std::string_view PartVerdictName(PartVerdict verdict);

struct PartResult {
  std::string name;
  PartVerdict verdict = PartVerdict::kNotRun;
  std::string what;    // one line: how it ended, or why it did not run
  std::string reason;  // why it was to run, or not: a file and a pattern
  std::string command;
  std::string log;  // file with all that it printed; empty when it did not run
  double seconds = 0;
};

struct PlanResult {
  std::vector<PartResult> parts;
  double seconds = 0;
  bool interrupted = false;

  bool Has(PartVerdict verdict) const;
  // kFailed, else kInconclusive when a part proved nothing or was not run, or there is no part at
  // all; else kHolds.
  PartVerdict verdict() const;
};

struct RunPlanOptions {
  std::string seed;
  std::string folder;      // for logs and what parts write; each part's own is made anew
  std::string bin;         // folder of `lockstep`, first in the PATH of the parts
  double seconds_max = 0;  // of all parts together
  // May be empty: told before each part that runs, after each part, and asked while one runs
  // whether to go on.
  std::function<void(const Selected&)> on_start = {};
  std::function<void(const PartResult&)> on_result = {};
  std::function<bool(double part_seconds)> on_wait = {};
};

PlanResult RunPlan(const std::vector<Selected>& parts, const RunPlanOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_CI_PLAN_RUN_H_
