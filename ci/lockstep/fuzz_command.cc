// lockstep fuzz: the fuzz targets, in any build, until the time or the number of inputs is reached
// or something is found. Cache scripts are generated and compared with the model cache; the other
// targets take bytes. Before anything else a planted fault has to be found: a fuzzer that cannot
// find it would find nothing.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "caches/error.h"
#include "ci/lockstep/byte_campaign.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/finding_keeper.h"
#include "ci/lockstep/script_campaign.h"
#include "engine/stopwatch.h"

namespace lockstep::cli {
namespace {

struct FuzzFlags {
  int32_t seconds = 10;
  int32_t scripts = 0;
  int32_t operations = 60;
  int32_t exhaustive = 0;
  std::string seed = "1";
  std::vector<std::string> caches;
  std::vector<std::string> targets;
  std::string plant;
  std::string out;
  std::string export_test;
  std::string corpus = LOCKSTEP_CORPUS_DEFAULT;
  std::string shard = "1/1";
  std::string shard_file;
};

// How long a target has, by time or by inputs.
struct Limit {
  int32_t seconds = 0;
  int32_t inputs = 0;  // 0: as many as the time allows

  bool IsReached(const Stopwatch& watch, int64_t done) const {
    return inputs > 0 ? done >= inputs : watch.seconds() >= seconds;
  }
};

// Any other target.
ShardResult RunBytes(const FuzzFlags& flags, const FuzzTargetInfo& info, const Limit& limit,
                     FindingKeeper* keeper) {
  constexpr int64_t kBatch = 512;
  const Shard shard = ParseShard(flags.shard);
  ByteCampaign campaign(info, {.plant = flags.plant,
                               .seed = SeedOf(flags.seed),
                               .corpus = ReadCorpus(flags.corpus, info.name),
                               .shard = shard});
  const int64_t before = keeper->faults();
  const auto found = [&] { return keeper->faults() > before; };
  Stopwatch watch;
  while (!limit.IsReached(watch, campaign.drawn()) && (!found() || keeper->goes_on())) {
    const int64_t left = limit.inputs > 0 ? limit.inputs - campaign.drawn() : kBatch;
    campaign.Run(
        std::min(kBatch, left), [&](const FuzzFinding& f) { return !keeper->IsNew(f); },
        [&](const FuzzFinding& finding, const std::string& text) {
          if (keeper->IsNew(finding)) {
            fmt::print("FOUND: {}: {}\n", finding.place, finding.what);
            keeper->Keep(info.name, finding, text);
          }
          return keeper->goes_on();
        });
  }
  ShardResult result = campaign.result();
  result.inputs_of_all = limit.inputs > 0 ? limit.inputs : campaign.drawn();
  result.campaign =
      fmt::format("lockstep fuzz --target {} --seed {} --scripts {}{}", info.name, flags.seed,
                  result.inputs_of_all, flags.plant.empty() ? "" : " --plant " + flags.plant);
  fmt::print("{}{}: {} inputs, {:.0f} inputs/s\ndigest {}\n{}: {}{}\n",
             found() ? "" : "holds: ", info.name, result.inputs,
             static_cast<double>(result.inputs) / watch.seconds(), result.sum.Hex(),
             found() ? "found by" : "repeat", result.campaign,
             shard.is_all() ? "" : " --shard " + flags.shard);
  return result;
}

// A shard's numbers mean something only where the inputs are numbered to an end.
void RequireShardable(const FuzzFlags& flags) {
  if (flags.shard == "1/1" && flags.shard_file.empty()) return;
  if (flags.exhaustive == 0 && (flags.scripts == 0 || flags.targets.size() > 1)) {
    throw Error({"--shard", "cuts a number of inputs of one target",
                 "give --scripts N or --exhaustive N, and one --target"});
  }
}

void WriteShard(const FuzzFlags& flags, const FindingKeeper& keeper, ShardResult result) {
  result.findings = keeper.kept();
  WriteShardFile(flags.shard_file, flags.shard, std::move(result));
}

ScriptCampaignOptions CampaignOf(const FuzzFlags& flags, const Limit& limit) {
  return {.caches = flags.caches,
          .plant = flags.plant,
          .seed = flags.seed,
          .operations = flags.operations,
          .corpus = ReadCorpus(flags.corpus, "caches"),
          .seconds = limit.seconds,
          .scripts = limit.inputs,
          .shard = ParseShard(flags.shard)};
}

// Every script of a small scope, which is another kind of campaign over caches.
ExitCode RunExhaustive(const FuzzFlags& flags) {
  if (!flags.targets.empty() || flags.scripts > 0) {
    throw Error(
        {"--exhaustive", "runs every script on caches", "leave --target and --scripts out"});
  }
  FindingKeeper keeper({flags.out, flags.export_test, flags.plant});
  WriteShard(flags, keeper,
             RunExhaustiveCampaign({.caches = flags.caches,
                                    .plant = flags.plant,
                                    .operations = flags.exhaustive,
                                    .shard = ParseShard(flags.shard)},
                                   &keeper));
  return keeper.faults() > 0 ? ExitCode::kDifference : ExitCode::kHolds;
}

ExitCode RunFuzz(const FuzzFlags& flags) {
  RequireShardable(flags);
  if (flags.exhaustive > 0) return RunExhaustive(flags);
  std::vector<std::string> targets = flags.targets;
  if (targets.empty()) targets = {"caches"};
  for (const std::string& name : targets) FuzzTargetNamed(name);
  const Limit limit{std::max(flags.seconds / static_cast<int32_t>(targets.size()), 1),
                    flags.scripts};
  FindingKeeper keeper({flags.out, flags.export_test, flags.plant});
  for (const std::string& name : targets) {
    const FuzzTargetInfo& info = FuzzTargetNamed(name);
    const bool caches = name == "caches";
    const bool canary =
        caches ? ScriptCanaryIsFound(flags.operations) : FindsCanary(info, SeedOf(flags.seed));
    if (!canary) {
      fmt::print("INCONCLUSIVE: {}: a planted fault was not found\n", name);
      return ExitCode::kInconclusive;
    }
    if (caches) {
      ScriptCampaignResult result = RunScriptCampaign(CampaignOf(flags, limit), &keeper);
      WriteShard(flags, keeper, std::move(result.shard));
      if (!result.missed.empty()) {
        fmt::print("INCONCLUSIVE: no script reached {}\n", fmt::join(result.missed, ", "));
        return ExitCode::kInconclusive;
      }
    } else {
      WriteShard(flags, keeper, RunBytes(flags, info, limit, &keeper));
    }
    if (keeper.faults() > 0 && !keeper.goes_on()) break;
  }
  return keeper.faults() > 0 ? ExitCode::kDifference : ExitCode::kHolds;
}

std::string TargetHelp() {
  std::string help = "Targets, and the fault of each that --plant takes:\n";
  for (const FuzzTargetInfo& target : FuzzTargets()) {
    help += fmt::format("  {:<10} {}\n  {:<10} {}: {}\n", target.name, target.summary, "",
                        target.canary, target.canary_summary);
  }
  return help;
}

}  // namespace

Command FuzzCommand() {
  const auto values = std::make_shared<FuzzFlags>();
  return {
      .name = "fuzz",
      .summary = "Run generated inputs against the caches, or another fuzz target",
      .flags =
          {{"--seconds", "S", "how long, all targets together", IntTarget{&values->seconds, 1}},
           {"--scripts", "N", "so many scripts a target instead; 0: as the time allows",
            IntTarget{&values->scripts, 0}},
           {"--operations", "N", "operations a script", IntTarget{&values->operations, 1, 100000}},
           {"--exhaustive", "N", "every script of N operations on a tiny cache instead",
            IntTarget{&values->exhaustive, 1, 6}},
           {"--seed", "X", "a number, or any text such as a commit hash", &values->seed},
           {"--target", "NAME", "a target, once for each (default: caches)", &values->targets},
           {"--cache", "NAME", "a cache, once for each (default: all)", &values->caches},
           {"--plant", "FAULT", "a fault to plant, to see it found", &values->plant},
           {"--out", "PLACE", "keep a finding in this file, or each in this folder and go on",
            &values->out},
           {"--export-test", "FILE", "write a C++ test that shows the first finding",
            &values->export_test},
           {"--corpus", "DIR", "inputs to change, in a folder for each target", &values->corpus},
           {"--shard", "I/N", "only every N-th input, from the I-th", &values->shard},
           {"--shard-file", "FILE", "what ran, for lockstep merge", &values->shard_file}},
      .run = [values] { return RunFuzz(*values); },
      .details = TargetHelp()};
}

}  // namespace lockstep::cli
