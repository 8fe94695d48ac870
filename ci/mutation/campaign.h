// Plants faults one after the other, and says what the suite makes of each.
#ifndef LOCKSTEP_CI_MUTATION_CAMPAIGN_H_
#define LOCKSTEP_CI_MUTATION_CAMPAIGN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ci/mutation/fault.h"
#include "ci/mutation/suite.h"
#include "ci/mutation/workbench.h"

namespace lockstep::mutation {

enum class Verdict : uint8_t {
  kCaught,
  kMissed,        // every check passed
  kDoesNotBuild,  // nothing was proved
  kTimedOut,      // no check failed, and one ran into its limit of time or memory
};
std::string_view VerdictName(Verdict verdict);

struct FaultResult {
  Fault fault;
  Verdict verdict = Verdict::kMissed;
  std::string check;             // that caught it: the catalogue's catcher, or a check's name
  bool expected = false;         // the catalogue's catcher did
  std::string test = {};         // gtest's name of the test that failed
  double seconds_of_checks = 0;  // from the start of the first check to the failure
  double seconds_of_builds = 0;
  int script_ops = 0;  // of the shrunk cache script that `lockstep fuzz` printed; 0: none
  bool reference_catches = false;  // the reference's own suite, restated
};

// A fault and the whole text of its file with the edit made.
struct Planting {
  Fault fault;
  std::string edited;
};

// The edits made in the tree at `root`. Throws Error when one does not apply.
std::vector<Planting> PlantAll(const std::vector<Fault>& faults, const std::string& root);

struct CampaignOptions {
  WorkbenchOptions workbench;  // its folder gets one folder a job
  int jobs = 1;
  // Of the suite, by name; empty: all. A fault whose catcher is none of them meets the others in
  // their order, without it.
  std::vector<std::string> checks;
  std::string slow_tests;  // of ReadSlowTests, where kQuickTests is among the checks
  // A check hangs when it takes this and eight times what it takes without a fault.
  double seconds_of_patience = 15;
  bool asks_reference = true;  // also score the reference's suite, whatever checks are chosen
  // Also look for a script, for faults in caches/; where `fuzz` is among the checks.
  bool asks_scripts = true;
  std::function<void(const FaultResult&)> on_result;  // one call at a time
  std::function<void(const std::string&)> on_note;    // progress
};

struct CampaignResult {
  // One a fault, in their order. Empty when a check fails without any fault: then nothing that
  // fails with one would mean anything.
  std::vector<FaultResult> results;
  std::string baseline_failure;  // which check, and what it printed
  bool asked_reference = false;
  std::vector<std::string> checks;  // that ran, by name
  size_t checks_of_suite = 0;       // that there are
  double seconds_of_suite = 0;      // all that ran, one after the other, with no fault
};

CampaignResult RunCampaign(const std::vector<Planting>& plantings, const CampaignOptions& options);

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_CAMPAIGN_H_
