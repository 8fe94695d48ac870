// What a shard of a campaign of faults gives `lockstep merge`.
#ifndef LOCKSTEP_CI_MUTATION_FAULT_SHARDS_H_
#define LOCKSTEP_CI_MUTATION_FAULT_SHARDS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ci/mutation/campaign.h"
#include "ci/shard/shard.h"

namespace lockstep::mutation {

// `plantings` are what KeepShard left of `of_all`; of one without a result nothing is said.
// `is_missed` says which results are findings: a survivor that is explained is none.
ShardResult ShardOfFaults(const Shard& shard, const std::string& command, int64_t of_all,
                          const std::vector<Planting>& plantings,
                          const std::vector<FaultResult>& results,
                          const std::function<bool(const FaultResult&)>& is_missed);

}  // namespace lockstep::mutation

#endif  // LOCKSTEP_CI_MUTATION_FAULT_SHARDS_H_
