// Whether `lockstep golden explain` knows a planted fault by the golden files that it changes: the
// place where it shows first, and the class of its cause.
#ifndef LOCKSTEP_CI_MUTATION_EXPLAINED_H_
#define LOCKSTEP_CI_MUTATION_EXPLAINED_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ci/mutation/campaign.h"
#include "ci/mutation/fault.h"
#include "ci/mutation/workbench.h"
#include "reports/table.h"

namespace lockstep::mutation {

struct ExplainedFault {
  Fault fault;
  std::string problem = {};   // why there is no explanation, else empty
  int goldens = 0;            // that differ, as far as they were explained
  std::string place = {};     // that most of them name: "layer 0, key_rope"
  std::string cause = {};     // the same
  std::string evidence = {};  // of one of these
  bool right_place = false;
  bool right_cause = false;
};

// Where the catalogue expects it: "layer 0, key_rope".
std::string ExpectedPlace(const Fault& fault);

// From what calls of `lockstep golden explain --json` printed; one that the fault has ended printed
// nothing that counts. Of several golden files the place and the cause count that most of them
// name.
ExplainedFault JudgeExplanations(const Fault& fault, std::span<const std::string> outputs);

struct ExplainFaultsOptions {
  WorkbenchOptions workbench;
  int goldens_max = 12;  // explained a fault
  std::function<void(const ExplainedFault&)> on_result = {};
};

// Plants one after the other in a copy of the tree, builds `lockstep` and has it explain. Throws
// Error when the tree as it is does not build, or its golden files do not hold.
std::vector<ExplainedFault> ExplainFaults(const std::vector<Fault>& faults,
                                          const ExplainFaultsOptions& options);

std::string ExplainedLine(const ExplainedFault& result);
Table ExplainedTable(const std::vector<ExplainedFault>& results);
std::string ExplainedScore(const std::vector<ExplainedFault>& results);

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_EXPLAINED_H_
