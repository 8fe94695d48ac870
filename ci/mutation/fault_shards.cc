#include "ci/mutation/fault_shards.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::mutation {

ShardResult ShardOfFaults(const Shard& shard, const std::string& command, int64_t of_all,
                          const std::vector<Planting>& plantings,
                          const std::vector<FaultResult>& results,
                          const std::function<bool(const FaultResult&)>& is_missed) {
  ShardResult given;
  given.campaign = command;
  given.shard = shard;
  given.inputs_of_all = of_all;
  for (size_t i = 0; i < plantings.size(); ++i) {
    const Fault& fault = plantings[i].fault;  // a mutant shares its name with those of its line
    const auto has_it = [&](const FaultResult& r) {
      return r.fault.name == fault.name && r.fault.says == fault.says;
    };
    const auto result = std::ranges::find_if(results, has_it);
    if (result == results.end()) continue;
    const std::string verdict(VerdictName(result->verdict));
    given.Add(static_cast<int64_t>(i) * shard.count + shard.index - 1,
              fmt::format("{} {}", result->fault.name, verdict));
    ++given.counters[verdict];
    if (!is_missed(*result)) continue;
    given.findings.push_back({result->fault.name, verdict + ": " + result->fault.says, command});
  }
  return given;
}

}  // namespace lockstep::mutation
