// What a campaign found, for people, programs and docs/faults.md.
#ifndef LOCKSTEP_CI_MUTATION_REPORT_H_
#define LOCKSTEP_CI_MUTATION_REPORT_H_

#include <string>
#include <vector>

#include "ci/mutation/campaign.h"
#include "reports/table.h"

namespace lockstep::mutation {

// One line of progress.
std::string ResultLine(const FaultResult& result);

// Which of the results count: all but equivalent mutants, and mutants that do not build, which are
// no program that anybody could run. A planted fault that does not build is a fault of the
// catalogue, and counts as not caught.
struct Score {
  int total = 0;
  int caught = 0;
  int expected = 0;      // by the catalogue's catcher
  int by_reference = 0;  // by the reference's suite
  int timed_out = 0;
  int does_not_build = 0;
  int equivalent = 0;         // of mutants, excluded from total
  int scripts = 0;            // found by a cache script
  int scripts_to_6_ops = 0;   // of these, shrunk to at most six operations
  double seconds_median = 0;  // of checks, until caught
  double seconds_max = 0;

  bool all_caught() const { return caught == total && total > 0; }
};
Score ScoreOf(const std::vector<FaultResult>& faults);
Score ScoreOfMutants(const std::vector<FaultResult>& mutants,
                     const std::vector<EquivalentMutant>& equivalent);

// Whether a mutant is one of the list.
const EquivalentMutant* FindEquivalent(const Fault& mutant,
                                       const std::vector<EquivalentMutant>& list);

Table FaultTable(const std::vector<FaultResult>& results);
Table MutantTable(const std::vector<FaultResult>& results,
                  const std::vector<EquivalentMutant>& equivalent);
Table ClassTable(const std::vector<FaultResult>& results);
std::string ScoreText(const Score& score, const CampaignResult& campaign);
std::string ResultsJson(const std::vector<FaultResult>& results);

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_REPORT_H_
