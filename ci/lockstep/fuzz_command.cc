// lockstep fuzz: the fuzz targets, in any build, until the time or the number of inputs is reached
// or something is found. Cache scripts are generated and compared with the model cache; the other
// targets take bytes. Before anything else a planted fault has to be found: a fuzzer that cannot
// find it would find nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "caches/digest.h"
#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "ci/lockstep/byte_campaign.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/finding_keeper.h"
#include "ci/lockstep/script_subject.h"
#include "engine/stopwatch.h"
#include "properties/script_builder.h"

namespace lockstep::cli {
namespace {

struct FuzzFlags {
  int32_t seconds = 10;
  int32_t scripts = 0;
  int32_t operations = 60;
  std::string seed = "1";
  std::vector<std::string> caches;
  std::vector<std::string> targets;
  std::string plant;
  std::string out;
  std::string export_test;
  std::string corpus = LOCKSTEP_CORPUS_DEFAULT;
};

// A number is itself; any other text, a commit hash say, stands for a part of its digest.
uint64_t SeedOf(const std::string& text) {
  uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, seed);
  if (result.ec == std::errc() && result.ptr == end) return seed;
  return DigestOfBytes(std::as_bytes(std::span(text))).low;
}

// Whether a fault that is known to be there is found within a few scripts.
bool CanaryIsFound(int32_t operations) {
  const ScriptSubject subject = SubjectFor("simple", "stale-row:layer=0");
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    if (RunScript(GenerateScript("simple", seed, operations), subject).finding) return true;
  }
  return false;
}

// How long a target has, by time or by inputs.
struct Limit {
  int32_t seconds = 0;
  int32_t inputs = 0;  // 0: as many as the time allows

  bool IsReached(const Stopwatch& watch, int64_t done) const {
    return inputs > 0 ? done >= inputs : watch.seconds() >= seconds;
  }
};

void ClearProgress(bool live) {
  if (live) fmt::print(stderr, "\r\033[K");
}

// Cache scripts: most generated, some of the corpus changed.
class CachesCampaign {
 public:
  CachesCampaign(const FuzzFlags& flags, const Limit& limit, FindingKeeper* keeper)
      : flags_(flags),
        limit_(limit),
        keeper_(*keeper),
        random_(SeedOf(flags.seed)),
        corpus_(ReadCorpus(flags.corpus, "caches")),
        changed_(random_.Split(1).Next(), corpus_),
        live_(isatty(STDERR_FILENO) == 1) {
    for (const std::string& name : flags.caches) caches_.push_back(name);
    if (caches_.empty()) {
      for (const CacheSpec& spec : AllCaches()) caches_.push_back(spec.name);
    }
    for (const std::string& name : caches_) subjects_.push_back(SubjectFor(name, flags.plant));
  }

  void Run() {
    fmt::print("lockstep fuzz: seed {}, {} operations a script, {} caches\n", flags_.seed,
               flags_.operations, caches_.size());
    while (!limit_.IsReached(watch_, scripts_) && (keeper_.faults() == 0 || keeper_.goes_on())) {
      const size_t which = static_cast<size_t>(scripts_) % caches_.size();
      const CacheScript script = NextScript(caches_[which]);
      const ScriptRun run = RunScript(script, subjects_[which]);
      counts_ += run.counts;
      ++scripts_;
      if (run.finding) Report(script, subjects_[which], *run.finding);
      if (live_ && scripts_ % 64 == 0) {
        fmt::print(stderr, "\r\033[K{} scripts, {} operations", scripts_, counts_.operations);
      }
    }
    ClearProgress(live_);
    if (keeper_.faults() == 0) fmt::print("holds: ");
    fmt::print("{} scripts, {} operations, {} rows compared, {:.0f} operations/s\n", scripts_,
               counts_.operations, counts_.rows_compared,
               static_cast<double>(counts_.operations) / watch_.seconds());
    fmt::print("digest {}\n{}: {}\n", CountsDigest().Hex(),
               keeper_.faults() == 0 ? "repeat" : "found by", RepeatCommand());
  }

 private:
  CacheScript NextScript(const std::string& cache) {
    const uint64_t seed = random_.Next();
    if (!corpus_.empty() && seed % 8 == 0) return DecodeScript(cache, changed_.Next());
    return GenerateScript(cache, seed, flags_.operations);
  }

  // Of what was reached: equal for equal seeds and numbers of scripts, on every machine.
  Digest CountsDigest() const {
    DigestBuilder builder;
    for (int64_t count : {counts_.operations, counts_.granted, counts_.refused, counts_.committed,
                          counts_.updated, counts_.threw, counts_.exhausted, counts_.rolled_back,
                          counts_.forked, counts_.restored, counts_.rows_compared}) {
      builder.AddU64(static_cast<uint64_t>(count));
    }
    for (int64_t count : counts_.positions) builder.AddU64(static_cast<uint64_t>(count));
    return builder.Finish();
  }

  std::string RepeatCommand() const {
    std::string command = fmt::format("lockstep fuzz --seed {} --scripts {} --operations {}",
                                      flags_.seed, scripts_, flags_.operations);
    for (const std::string& cache : flags_.caches) command += " --cache " + cache;
    if (!flags_.plant.empty()) command += " --plant " + flags_.plant;
    return command;
  }

  static FuzzFinding Named(const CacheScript& script, const ScriptFinding& finding) {
    const ScriptOp& op = script.ops.at(static_cast<size_t>(finding.op));
    return {fmt::format("[{}] after {}", finding.clause, ScriptOpName(op.kind)), finding.what};
  }

  void Report(const CacheScript& script, const ScriptSubject& subject,
              const ScriptFinding& finding) {
    ClearProgress(live_);
    if (!keeper_.IsNew(Named(script, finding))) return;
    const CacheScript shrunk = ShrinkScript(script, subject);
    const ScriptFinding smallest = *RunScript(shrunk, subject).finding;
    if (!keeper_.IsNew(Named(shrunk, smallest))) return;
    PrintFindingLine(smallest);
    keeper_.Keep("caches", Named(shrunk, smallest), ScriptText(shrunk));
  }

  const FuzzFlags& flags_;
  Limit limit_;
  FindingKeeper& keeper_;
  Random random_;
  std::vector<Bytes> corpus_;
  ByteSource changed_;
  bool live_;
  std::vector<std::string> caches_;
  std::vector<ScriptSubject> subjects_;
  Stopwatch watch_;
  int64_t scripts_ = 0;
  ScriptCounts counts_;
};

// Any other target.
void RunBytes(const FuzzFlags& flags, const FuzzTargetInfo& info, const Limit& limit,
              FindingKeeper* keeper) {
  constexpr int64_t kBatch = 512;
  ByteCampaign campaign(info, {.plant = flags.plant,
                               .seed = SeedOf(flags.seed),
                               .corpus = ReadCorpus(flags.corpus, info.name)});
  const int64_t before = keeper->faults();
  const auto found = [&] { return keeper->faults() > before; };
  Stopwatch watch;
  while (!limit.IsReached(watch, campaign.inputs()) && (!found() || keeper->goes_on())) {
    const int64_t left = limit.inputs > 0 ? limit.inputs - campaign.inputs() : kBatch;
    campaign.Run(
        std::min(kBatch, left), [&](const FuzzFinding& f) { return !keeper->IsNew(f); },
        [&](const FuzzFinding& finding, const std::string& text) {
          if (!keeper->IsNew(finding)) return;
          fmt::print("FOUND: {}: {}\n", finding.place, finding.what);
          keeper->Keep(info.name, finding, text);
        });
  }
  fmt::print("{}{}: {} inputs, {:.0f} inputs/s\ndigest {}\n", found() ? "" : "holds: ", info.name,
             campaign.inputs(), static_cast<double>(campaign.inputs()) / watch.seconds(),
             campaign.digest().Hex());
  fmt::print("{}: lockstep fuzz --target {} --seed {} --scripts {}{}\n",
             found() ? "found by" : "repeat", info.name, flags.seed, campaign.inputs(),
             flags.plant.empty() ? "" : " --plant " + flags.plant);
}

ExitCode RunFuzz(const FuzzFlags& flags) {
  std::vector<std::string> targets = flags.targets;
  if (targets.empty()) targets = {"caches"};
  for (const std::string& name : targets) FuzzTargetNamed(name);
  const Limit limit{std::max(flags.seconds / static_cast<int32_t>(targets.size()), 1),
                    flags.scripts};
  FindingKeeper keeper({flags.out, flags.export_test, flags.plant});
  for (const std::string& name : targets) {
    const FuzzTargetInfo& info = FuzzTargetNamed(name);
    const bool caches = name == "caches";
    if (!(caches ? CanaryIsFound(flags.operations) : FindsCanary(info, SeedOf(flags.seed)))) {
      fmt::print("INCONCLUSIVE: {}: a planted fault was not found\n", name);
      return ExitCode::kInconclusive;
    }
    if (caches) {
      CachesCampaign(flags, limit, &keeper).Run();
    } else {
      RunBytes(flags, info, limit, &keeper);
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
           {"--seed", "X", "a number, or any text such as a commit hash", &values->seed},
           {"--target", "NAME", "a target, once for each (default: caches)", &values->targets},
           {"--cache", "NAME", "a cache, once for each (default: all)", &values->caches},
           {"--plant", "FAULT", "a fault to plant, to see it found", &values->plant},
           {"--out", "PLACE", "keep a finding in this file, or each in this folder and go on",
            &values->out},
           {"--export-test", "FILE", "write a C++ test that shows the first finding",
            &values->export_test},
           {"--corpus", "DIR", "inputs to change, in a folder for each target", &values->corpus}},
      .run = [values] { return RunFuzz(*values); },
      .details = TargetHelp()};
}

}  // namespace lockstep::cli
