#include "ci/lockstep/matrix_shard.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {

int64_t KeepAxesOfShard(const Shard& shard, MatrixOptions* options) {
  if (options->axes.empty()) {
    for (const MatrixAxisInfo& info : MatrixAxes()) options->axes.push_back(info.axis);
  }
  return KeepShard(shard, &options->axes);
}

void WriteMatrixShard(const MatrixFlags& flags, int64_t axes_of_all, const MatrixResult& result) {
  ShardResult shard;
  shard.campaign = flags.CommandLine();
  shard.inputs_of_all = axes_of_all;
  shard.counters["digests compared"] = result.comparisons;
  for (const MatrixRow& row : result.rows) {
    std::string gave;
    bool proved = true;
    for (const MatrixCell& cell : row.cells) {
      gave +=
          fmt::format("{} {} {}\n", cell.value, MatrixVerdictName(cell.verdict), cell.digest.Hex());
      proved = proved && cell.verdict != MatrixCell::Verdict::kUnproved;
      if (cell.verdict != MatrixCell::Verdict::kDiffers) continue;
      shard.findings.push_back({fmt::format("{} {}", row.axis->name, cell.value), cell.detail,
                                flags.CommandLine(row.axis->name)});
    }
    if (proved) shard.Add(static_cast<int64_t>(row.axis->axis), gave);
  }
  WriteShardFile(flags.shard_file, flags.shard, std::move(shard));
}

}  // namespace lockstep::cli
