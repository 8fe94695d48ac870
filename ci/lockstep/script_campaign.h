// Campaigns of cache scripts on chosen caches: generated ones, and every one of a small scope.
// Scripts run in processes of their own, many in each, so that a cache that crashes or hangs is a
// finding with a script like any other.
#ifndef LOCKSTEP_CI_LOCKSTEP_SCRIPT_CAMPAIGN_H_
#define LOCKSTEP_CI_LOCKSTEP_SCRIPT_CAMPAIGN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ci/lockstep/byte_campaign.h"
#include "ci/lockstep/finding_keeper.h"
#include "ci/shard/shard.h"

namespace lockstep::cli {

// A number is itself; any other text, a commit hash say, stands for a part of its digest.
uint64_t SeedOf(const std::string& text);

struct ScriptCampaignOptions {
  std::vector<std::string> caches;  // names; empty: all of the registry
  std::string plant;                // into each of them, or empty
  std::string seed = "1";           // a number, or any text
  int32_t operations = 60;          // of a script
  std::vector<Bytes> corpus = {};   // scripts to change beside new ones
  int32_t seconds = 10;             // how long
  int64_t scripts = 0;              // so many instead; 0: as the time allows
  Shard shard = {};                 // its part of them
};

// So many scripts, of so many operations at the least, reach every class of positions and of
// sequences of operations that their caches can reach (properties/class_reach.h). The rarest over
// all caches, refused_then_committed, comes more than 20 times in as many, and each cache alone has
// none as rare: chance misses one in less than a campaign in 10^5, even if they come in pairs.
inline constexpr int64_t kScriptsOfEveryClass = 12288;
inline constexpr int32_t kOperationsOfEveryClass = 60;

struct ScriptCampaignResult {
  ShardResult shard;                // what ran, without findings; an input is a script
  std::vector<std::string> missed;  // classes, of a campaign that is long enough to reach all
};

// Prints what ran, how often each class was reached, and the command that repeats it. Throws Error
// for an unknown cache or plant.
ScriptCampaignResult RunScriptCampaign(const ScriptCampaignOptions& options, FindingKeeper* keeper);

// Every script of so many operations over the tiny scope of each cache (properties/exhaustive.h).
// An input is all scripts with one first operation.
ShardResult RunExhaustiveCampaign(const ScriptCampaignOptions& options, FindingKeeper* keeper);

// Whether a fault that is known to be there is found within a few scripts of so many operations.
bool ScriptCanaryIsFound(int32_t operations);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_SCRIPT_CAMPAIGN_H_
