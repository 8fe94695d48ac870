// lockstep gate: the parts of a lockstep.toml that a change affects, and one verdict.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/progress_line.h"
#include "ci/lockstep/shell_word.h"
#include "ci/plan/report.h"
#include "ci/shard/shard.h"

namespace lockstep::cli {
namespace {

// Where the plan is when nobody says so; the first that is there.
constexpr std::string_view kDefaultFiles[] = {"lockstep.toml", "ci/lockstep.toml"};

struct GateFlags {
  std::string config;
  std::string tier = "smoke";
  std::string base;
  std::string seed;
  std::string shard = "1/1";
  std::string out = "build/lockstep-gate";
  std::string markdown;
  std::string json;
  std::string junit;
  bool all = false;
  bool annotations = false;
  bool list = false;
  bool print_config = false;
};

// SIGINT and SIGTERM wait while parts run, each in a process group of its own: they end the part
// first, and the report is still written.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    sigaddset(&held_, SIGINT);
    sigaddset(&held_, SIGTERM);
    sigprocmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Whether one arrived; it is taken.
  bool Take() {
    const timespec now = {};
    return sigtimedwait(&held_, nullptr, &now) > 0;
  }

 private:
  sigset_t held_ = {};
  sigset_t before_ = {};
};

Plan ReadPlan(const GateFlags& flags) {
  if (!flags.config.empty()) return ParsePlan(ReadWholeTextFile(flags.config), flags.config);
  for (const std::string_view file : kDefaultFiles) {
    if (!std::filesystem::exists(file)) continue;
    return ParsePlan(ReadWholeTextFile(std::string(file)), file);
  }
  return ParsePlan(DefaultPlan(), "the built-in plan");
}

struct Scope {
  std::vector<Selected> parts;
  std::string text;
  bool is_empty = false;  // nothing changed: there is nothing to judge
};

Scope WholeScope(const GateFlags& flags, const Plan& plan) {
  const PlanTier& tier = FindTier(plan, flags.tier);
  if (flags.all || !tier.by_diff) {
    return {SelectParts(plan, tier.name, false, {}), "every part", false};
  }
  if (flags.base.empty()) {
    return {SelectParts(plan, tier.name, false, {}), "every part, for want of --base", false};
  }
  const std::vector<std::string> changed = ChangedFiles(flags.base);
  return {SelectParts(plan, tier.name, true, changed),
          fmt::format("{} files differ from {}", changed.size(), flags.base), changed.empty()};
}

Scope ScopeOf(const GateFlags& flags, const Plan& plan) {
  Scope scope = WholeScope(flags, plan);
  const Shard shard = ParseShard(flags.shard);
  if (shard.is_all()) return scope;
  KeepPartsOfShard(&scope.parts, shard.index, shard.count);
  scope.text += ", shard " + shard.Text();
  return scope;
}

std::string RepeatCommand(const GateFlags& flags, const std::string& seed) {
  std::string line = "lockstep gate";
  if (!flags.config.empty()) line += " --config " + ShellWord(flags.config);
  line += " --tier " + ShellWord(flags.tier);
  if (flags.all) line += " --all";
  if (!flags.base.empty()) line += " --base " + ShellWord(flags.base);
  if (flags.shard != "1/1") line += " --shard " + ShellWord(flags.shard);
  return line + " --seed " + ShellWord(seed);
}

void List(const Scope& scope) {
  for (const Selected& one : scope.parts) {
    fmt::print("{} {}: {}\n  {}\n", one.runs ? "runs" : "skips", one.part->name, one.reason,
               one.part->run);
  }
}

PlanResult Run(const GateFlags& flags, const Plan& plan, const Scope& scope,
               const std::string& seed) {
  HeldSignals signals;
  ProgressLine line;
  std::string running;
  double next_shown = 0;  // seconds of the part: it is asked many times a second
  RunPlanOptions options{
      .seed = seed,
      .folder = std::filesystem::absolute(flags.out).string(),
      .bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().string(),
      .seconds_max = 60.0 * FindTier(plan, flags.tier).minutes};
  options.on_start = [&](const Selected& selected) {
    running = selected.part->name;
    next_shown = 0;
  };
  options.on_wait = [&](double seconds) {
    if (seconds >= next_shown) {
      line.Show(fmt::format("{} {:.0f} s", running, seconds));
      next_shown = seconds + 0.2;
    }
    return !signals.Take();
  };
  options.on_result = [&](const PartResult& result) {
    line.Clear();
    fmt::print(stderr, "{} {} ({:.1f} s): {}\n", result.name, PartVerdictName(result.verdict),
               result.seconds, result.what);
  };
  return RunPlan(scope.parts, options);
}

void Write(const GateFlags& flags, const PlanRun& run, const PlanResult& result) {
  if (!flags.json.empty()) WriteWholeTextFile(flags.json, PlanJson(run, result));
  if (!flags.junit.empty()) WriteWholeTextFile(flags.junit, PlanJunit(run, result));
  if (!flags.markdown.empty()) WriteWholeTextFile(flags.markdown, PlanMarkdown(run, result));
  if (flags.annotations) fmt::print("{}", PlanAnnotations(result));
}

ExitCode Gate(const GateFlags& flags) {
  if (flags.print_config) {
    fmt::print("{}", DefaultPlan());
    return ExitCode::kHolds;
  }
  const Plan plan = ReadPlan(flags);
  const Scope scope = ScopeOf(flags, plan);
  const std::string commit = flags.seed.empty() ? HeadCommit() : "";
  const std::string seed = !flags.seed.empty() ? flags.seed : commit.empty() ? "1" : commit;
  if (!std::ranges::all_of(seed,
                           [](char c) { return std::isalnum(static_cast<unsigned char>(c)); })) {
    throw Error({"--seed", fmt::format("'{}' is not made of letters and digits", seed),
                 "give a number or a commit hash"});
  }
  if (flags.list) {
    List(scope);
    return ExitCode::kHolds;
  }
  fmt::print("lockstep gate: tier {}, {}, seed {}\n", flags.tier, scope.text, seed);
  std::fflush(stdout);
  if (scope.is_empty) {
    fmt::print(
        "INCONCLUSIVE: no file differs from {}: there is nothing to judge (--all runs "
        "everything)\n",
        flags.base);
    return ExitCode::kInconclusive;
  }
  const PlanRun run{flags.tier, seed, scope.text, RepeatCommand(flags, seed)};
  const PlanResult result = Run(flags, plan, scope, seed);
  fmt::print("\n{}", PlanText(run, result));
  Write(flags, run, result);
  switch (result.verdict()) {
    case PartVerdict::kHolds:
      return ExitCode::kHolds;
    case PartVerdict::kFailed:
      return ExitCode::kDifference;
    default:
      return ExitCode::kInconclusive;
  }
}

}  // namespace

Command GateCommand() {
  const auto flags = std::make_shared<GateFlags>();
  return {
      .name = "gate",
      .summary = "Run what a change has to pass, and give one verdict",
      .flags = {{"--tier", "NAME", "smoke, full, deep, or another of the file", &flags->tier},
                {"--base", "REV",
                 "in a tier that selects by diff: only what changes since REV affect",
                 &flags->base},
                {"--all", "", "every part of the tier, whatever changed", &flags->all},
                {"--config", "FILE",
                 "what to run (default: lockstep.toml, ci/lockstep.toml, else a built-in plan)",
                 &flags->config},
                {"--seed", "X",
                 "a number or a commit hash (default: the commit that is checked out)",
                 &flags->seed},
                {"--shard", "I/N", "only every N-th of the parts, by their minutes", &flags->shard},
                {"--out", "DIR", "logs, and what parts write", &flags->out},
                {"--list", "", "say which parts would run, and why, and run none", &flags->list},
                {"--print-config", "", "print the built-in plan, to start a lockstep.toml from",
                 &flags->print_config},
                {"--json-file", "FILE", "the result as JSON", &flags->json},
                {"--junit", "FILE", "the result as JUnit XML", &flags->junit},
                {"--markdown", "FILE", "the result as Markdown, for a comment or a job summary",
                 &flags->markdown},
                {"--annotations", "", "print GitHub's ::error lines too", &flags->annotations}},
      .run = [flags] { return Gate(*flags); },
      .details =
          "Parts run one after the other. A part is green when it exits with 0 and printed\n"
          "its proof; one that did not run, or not to its end, makes the verdict "
          "inconclusive.\ndocs/gate.md describes lockstep.toml."};
}

}  // namespace lockstep::cli
