// lockstep merge: the results of a campaign's shards as one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "caches/file_io.h"
#include "ci/lockstep/commands.h"
#include "ci/shard/shard.h"

namespace lockstep::cli {
namespace {

struct MergeFlags {
  std::vector<std::string> files;
  std::string json;
};

ExitCode Merge(const MergeFlags& flags) {
  std::vector<ShardResult> results;
  for (const std::string& file : flags.files) {
    results.push_back(ParseShardJson(ReadWholeTextFile(file), file));
  }
  const MergedShards merged = MergeShards(results, flags.files);
  const ShardResult& whole = merged.whole;
  const int32_t count = results[0].shard.count;
  for (const ShardFinding& finding : whole.findings) {
    fmt::print("FOUND: {}: {}\n{}\n", finding.place, finding.what, finding.input);
  }
  for (const auto& [name, value] : whole.counters) fmt::print("{} {}\n", value, name);
  const auto say = [&](const std::vector<int32_t>& shards, std::string_view what) {
    if (!shards.empty()) fmt::print("shards {} of {} {}\n", fmt::join(shards, ", "), count, what);
  };
  say(merged.repeated, "ran more than once, with one result");
  say(merged.disagree, "ran more than once, with different results");
  say(merged.missing, "are missing");
  say(merged.unfinished, "did not run all of their inputs");
  if (!flags.json.empty()) WriteWholeTextFile(flags.json, ShardJson(whole));

  const std::string done =
      fmt::format("{} of {} inputs in {} shards", whole.inputs, whole.inputs_of_all, count);
  ExitCode code = ExitCode::kHolds;
  if (!whole.findings.empty() || !merged.disagree.empty()) {
    fmt::print("FOUND: {} findings, {} shards that disagree with themselves; {}\n",
               whole.findings.size(), merged.disagree.size(), done);
    code = ExitCode::kDifference;
  } else if (!merged.missing.empty() || !merged.unfinished.empty()) {
    fmt::print("INCONCLUSIVE: {}\n", done);
    code = ExitCode::kInconclusive;
  } else {
    fmt::print("holds: {}\n", done);
  }
  fmt::print("digest {}\nrepeat: {}\n", whole.sum.Hex(), whole.campaign);
  return code;
}

}  // namespace

Command MergeCommand() {
  const auto flags = std::make_shared<MergeFlags>();
  return {
      .name = "merge",
      .summary = "Join what the shards of a campaign found",
      .flags = {{"file", "FILE ...", "what --shard-file wrote, in any order", &flags->files, true},
                {"--json-file", "FILE", "the whole as one such file", &flags->json}},
      .run = [flags] { return Merge(*flags); },
      .details =
          "The union of all shards of any number has the digest of one run without\n"
          "--shard. A shard that is missing, was cut short, or gave two results is "
          "named;\nresults of different builds or campaigns are refused."};
}

}  // namespace lockstep::cli
