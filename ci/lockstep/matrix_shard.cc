#include "ci/lockstep/matrix_shard.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "caches/file_io.h"

namespace lockstep::cli {

int64_t KeepAxesOfShard(const Shard& shard, MatrixOptions* options) {
  std::vector<MatrixAxis>& axes = options->axes;
  if (axes.empty()) {
    for (const MatrixAxisInfo& info : MatrixAxes()) axes.push_back(info.axis);
  }
  const std::vector<MatrixAxis> all = std::exchange(axes, {});
  for (size_t i = 0; i < all.size(); ++i) {
    if (shard.Has(static_cast<int64_t>(i))) axes.push_back(all[i]);
  }
  return std::ssize(all);
}

void WriteMatrixShard(const MatrixFlags& flags, int64_t axes_of_all, const MatrixResult& result) {
  if (flags.shard_file.empty()) return;
  ShardResult shard;
  shard.build = BuildDigest();
  shard.campaign = flags.CommandLine();
  shard.shard = ParseShard(flags.shard);
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
  WriteWholeTextFile(flags.shard_file, ShardJson(shard));
}

}  // namespace lockstep::cli
