// lockstep fuzz: generated cache scripts against the model cache, until the time or the number of
// scripts is reached or something is found. Before anything else a planted fault has to be found:
// a fuzzer that cannot find it would find nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <memory>

#include "caches/digest.h"
#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "ci/lockstep/commands.h"
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
  std::string plant;
  std::string out;
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

class Campaign {
 public:
  explicit Campaign(const FuzzFlags& flags)
      : flags_(flags), random_(SeedOf(flags.seed)), live_(isatty(STDERR_FILENO) == 1) {
    for (const std::string& name : flags.caches) caches_.push_back(name);
    if (caches_.empty()) {
      for (const CacheSpec& spec : AllCaches()) caches_.push_back(spec.name);
    }
    for (const std::string& name : caches_) subjects_.push_back(SubjectFor(name, flags.plant));
  }

  ExitCode Run() {
    fmt::print("lockstep fuzz: seed {}, {} operations a script, {} caches\n", flags_.seed,
               flags_.operations, caches_.size());
    while (!Done()) {
      const size_t which = static_cast<size_t>(scripts_) % caches_.size();
      const CacheScript script = GenerateScript(caches_[which], random_.Next(), flags_.operations);
      const ScriptRun run = RunScript(script, subjects_[which]);
      counts_ += run.counts;
      ++scripts_;
      if (run.finding) return Report(script, subjects_[which]);
      if (live_ && scripts_ % 64 == 0) PrintProgress();
    }
    if (live_) fmt::print(stderr, "\r\033[K");
    fmt::print("holds: {} scripts, {} operations, {} rows compared, {:.0f} operations/s\n",
               scripts_, counts_.operations, counts_.rows_compared,
               static_cast<double>(counts_.operations) / watch_.seconds());
    fmt::print("digest {}\nrepeat: {}\n", CountsDigest().Hex(), RepeatCommand());
    return ExitCode::kHolds;
  }

 private:
  bool Done() const {
    return flags_.scripts > 0 ? scripts_ >= flags_.scripts : watch_.seconds() >= flags_.seconds;
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

  void PrintProgress() const {
    fmt::print(stderr, "\r\033[K{} scripts, {} operations", scripts_, counts_.operations);
  }

  ExitCode Report(const CacheScript& script, const ScriptSubject& subject) const {
    if (live_) fmt::print(stderr, "\r\033[K");
    const CacheScript shrunk = ShrinkScript(script, subject);
    PrintFinding(shrunk, *RunScript(shrunk, subject).finding);
    const std::string plant = flags_.plant.empty() ? "" : " --plant " + flags_.plant;
    if (flags_.out.empty()) {
      fmt::print("repeat: lockstep replay{} - (with the script above)\n", plant);
    } else {
      std::ofstream file(flags_.out);
      file << ScriptText(shrunk);
      file.flush();
      if (!file) throw Error({flags_.out, "cannot be written", "the script is printed above"});
      fmt::print("repeat: lockstep replay{} {}\n", plant, flags_.out);
    }
    fmt::print("found by: {}\n", RepeatCommand());
    return ExitCode::kDifference;
  }

  const FuzzFlags& flags_;
  Random random_;
  bool live_;
  std::vector<std::string> caches_;
  std::vector<ScriptSubject> subjects_;
  Stopwatch watch_;
  int64_t scripts_ = 0;
  ScriptCounts counts_;
};

ExitCode RunFuzz(const FuzzFlags& flags) {
  Campaign campaign(flags);
  if (!CanaryIsFound(flags.operations)) {
    fmt::print("INCONCLUSIVE: a planted fault was not found by scripts of {} operations\n",
               flags.operations);
    return ExitCode::kInconclusive;
  }
  return campaign.Run();
}

}  // namespace

Command FuzzCommand() {
  const auto values = std::make_shared<FuzzFlags>();
  return {.name = "fuzz",
          .summary = "Run generated cache scripts against the model cache",
          .flags = {{"--seconds", "S", "how long", IntTarget{&values->seconds, 1}},
                    {"--scripts", "N", "so many scripts instead; 0: as many as the time allows",
                     IntTarget{&values->scripts, 0}},
                    {"--operations", "N", "operations a script",
                     IntTarget{&values->operations, 1, 100000}},
                    {"--seed", "X", "a number, or any text such as a commit hash", &values->seed},
                    {"--cache", "NAME", "a cache, once for each (default: all)", &values->caches},
                    {"--plant", "FAULT", "a fault to plant, to see it found", &values->plant},
                    {"--out", "FILE", "where to keep the script of a finding", &values->out}},
          .run = [values] { return RunFuzz(*values); }};
}

}  // namespace lockstep::cli
