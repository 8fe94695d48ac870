// What a run of a plan found, for a terminal, a comment on a pull request, another program, and the
// lines that GitHub shows beside a change.
#ifndef LOCKSTEP_CI_PLAN_REPORT_H_
#define LOCKSTEP_CI_PLAN_REPORT_H_

#include <string>

#include "ci/plan/run.h"

namespace lockstep {

// What was run, for the head of a report.
struct PlanRun {
  std::string tier;
  std::string seed;
  std::string scope;   // "14 files differ from main", "every part"
  std::string repeat;  // the whole gate again
};

// "HOLDS: 5 parts (83 s)", "FAILED: scripts; 1 of 5 parts (83 s)", "INCONCLUSIVE: ...".
std::string VerdictLine(const PlanRun& run, const PlanResult& result);

// The verdict, then each part that does not hold with the command that repeats it and its log, then
// a table of all parts.
std::string PlanText(const PlanRun& run, const PlanResult& result);
std::string PlanMarkdown(const PlanRun& run, const PlanResult& result);

// {"verdict", "tier", "seed", "scope", "seconds", "repeat", "parts": [{"name", "verdict", "what",
// "seconds", "command", "log"}]}.
std::string PlanJson(const PlanRun& run, const PlanResult& result);

// JUnit XML as Jenkins and GitLab read it: a test case for each part; what proved nothing or did
// not run is an error, what is unaffected is skipped.
std::string PlanJunit(const PlanRun& run, const PlanResult& result);

// One ::error line a part that does not hold: GitHub's workflow commands.
std::string PlanAnnotations(const PlanResult& result);

}  // namespace lockstep

#endif  // LOCKSTEP_CI_PLAN_REPORT_H_
