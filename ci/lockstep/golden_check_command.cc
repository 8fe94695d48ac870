// lockstep golden check: records every case again and compares with the golden files. What differs
// is left beside them as pending files; nothing is written where CI is set. The table goes to
// standard output, progress to standard error; with --json everything is one object.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "caches/error.h"
#include "ci/lockstep/golden_commands.h"
#include "ci/lockstep/model_source.h"
#include "ci/lockstep/progress_line.h"
#include "ci/lockstep/shell_word.h"
#include "engine/math.h"
#include "engine/stopwatch.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kChangesShown = 5;

struct CheckFlags {
  GoldenFlags golden;
  std::vector<std::string> cases;
  std::string cache;
  std::string isa;
  std::string plant;
  std::string device;
  int32_t threads = 1;
  bool legacy = false;
  bool json = false;

  // The command that checks this again, for one case or all that were named.
  std::string CommandLine(const std::string& scenario) const {
    std::string line = "lockstep golden check";
    for (const std::string& name : scenario.empty() ? cases : std::vector{scenario}) {
      line += fmt::format(" {}", ShellWord(name));
    }
    line += golden.CommandLine();
    if (!cache.empty()) line += fmt::format(" --cache {}", ShellWord(cache));
    if (!isa.empty()) line += fmt::format(" --isa {}", ShellWord(isa));
    if (!plant.empty()) line += fmt::format(" --plant {}", ShellWord(plant));
    if (!device.empty()) line += fmt::format(" --device {}", ShellWord(device));
    if (threads != 1) line += fmt::format(" --threads {}", threads);
    return legacy ? line + " --legacy" : line;
  }
};

ordered_json ChangeJson(const FactChange& change) {
  constexpr std::string_view kKinds[] = {"changed", "missing", "added"};
  ordered_json json = {{"kind", kKinds[static_cast<size_t>(change.kind)]},
                       {"place", change.place.Place()}};
  const std::pair<const char*, int32_t> numbers[] = {{"op", change.place.op},
                                                     {"step", change.place.step},
                                                     {"sequence", change.place.sequence},
                                                     {"layer", change.place.layer}};
  for (const auto& [name, number] : numbers) {
    if (number >= 0) json[name] = number;
  }
  json["name"] = change.place.name;
  if (change.kind != FactChange::Kind::kAdded) json["old"] = change.old_value;
  if (change.kind != FactChange::Kind::kMissing) json["new"] = change.new_value;
  return json;
}

void PrintJson(const CheckFlags& flags, const std::vector<GoldenStatus>& found, bool holds) {
  ordered_json files = ordered_json::array();
  for (const GoldenStatus& status : found) {
    ordered_json json = {
        {"case", status.scenario}, {"file", status.file}, {"state", GoldenStateName(status.state)}};
    if (!status.detail.empty()) json["detail"] = status.detail;
    if (!status.caches.empty()) json["caches"] = status.caches;
    if (!status.pending.empty()) json["pending"] = status.pending;
    for (const FactChange& change : status.changes) json["changes"].push_back(ChangeJson(change));
    files.push_back(std::move(json));
  }
  const ordered_json json = {
      {"holds", holds}, {"files", std::move(files)}, {"command", flags.CommandLine({})}};
  fmt::print("{}\n", json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

void PrintStatus(const CheckFlags& flags, const GoldenStatus& status) {
  fmt::print("{:<11} {}{}{}\n", GoldenStateName(status.state), status.scenario,
             status.file.empty() ? "" : "/", status.file);
  // The first change says the same as the detail.
  if (status.changes.empty() || status.state == GoldenState::kDisagree) {
    fmt::print("            {}\n", status.detail);
  }
  for (size_t i = 0; i < std::min(kChangesShown, status.changes.size()); ++i) {
    fmt::print("            {}\n", status.changes[i].Sentence());
  }
  if (status.changes.size() > kChangesShown) {
    fmt::print("            and {} more\n", status.changes.size() - kChangesShown);
  }
  if (HoldsWith(status.state)) return;
  if (!status.pending.empty()) fmt::print("            pending: {}\n", status.pending);
  fmt::print("            repeat: {}\n", flags.CommandLine(status.scenario));
}

void PrintSummary(const std::vector<GoldenStatus>& found, bool holds, double seconds) {
  std::map<GoldenState, size_t> counts;
  std::map<std::string, size_t> cases;
  for (const GoldenStatus& status : found) {
    ++counts[status.state];
    ++cases[status.scenario];
  }
  std::string text;
  for (const auto& [state, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, GoldenStateName(state));
  }
  fmt::print("{}: {} cases, {} files: {} ({:.1f} s)\n", holds ? "HOLDS" : "DIFFERS", cases.size(),
             found.size(), text.empty() ? "nothing to check" : text, seconds);
}

// What to do next, said once.
void PrintAdvice(const std::vector<GoldenStatus>& found, const CheckFlags& flags) {
  const auto any = [&](auto&& matches) { return std::ranges::any_of(found, matches); };
  if (any([](const GoldenStatus& s) { return !s.pending.empty() && !HoldsWith(s.state); })) {
    fmt::print("look at it: lockstep golden review{}\n", flags.golden.CommandLine());
  } else if (InContinuousIntegration() &&
             any([](const GoldenStatus& s) { return !HoldsWith(s.state); })) {
    fmt::print("CI is set: no pending file was written\n");
  }
}

ExitCode RunCheck(const CheckFlags& flags) {
  CheckFloatingPointEnvironment();
  if (!flags.device.empty() && !(flags.cache.empty() && flags.plant.empty())) {
    throw Error({"--device", "it chooses the caches, and faults are planted on the host",
                 "leave out --cache and --plant"});
  }
  CheckOptions options{.tree = flags.golden.tree, .cases = flags.cases, .cache = flags.cache};
  if (!flags.cache.empty()) ParseCacheSpec(flags.cache);
  options.record.kernels = &SelectKernels(flags.isa);
  options.record.threads = flags.threads;
  options.record.legacy = flags.legacy;
  options.record.models = ModelsFolder();
  if (!flags.device.empty()) options.record.device = MakeDevice(flags.device);
  // A wrong engine is there to be seen, not to be accepted.
  if (!flags.plant.empty()) options.record.subject = PlantedEngine(flags.plant);
  options.write_pending = flags.plant.empty() && flags.device.empty() && !InContinuousIntegration();
  ProgressLine line;
  options.on_progress = [&](const std::string& text) { line.Show(text); };
  const Stopwatch watch;
  const std::vector<GoldenStatus> found = CheckGoldens(options);
  line.Clear();
  const bool holds = std::ranges::all_of(
      found, [](const GoldenStatus& status) { return HoldsWith(status.state); });
  if (flags.json) {
    PrintJson(flags, found, holds);
  } else {
    for (const GoldenStatus& status : found) {
      if (status.state != GoldenState::kEqual) PrintStatus(flags, status);
    }
    PrintSummary(found, holds, watch.seconds());
    if (!holds) PrintAdvice(found, flags);
  }
  return holds ? ExitCode::kHolds : ExitCode::kDifference;
}

constexpr std::string_view kDetails =
    "Every case (golden/README.md) is recorded on all its caches and compared with its golden\n"
    "files. A file fails the check when it is\n"
    "  changed     the caches give something else now\n"
    "  missing     there is no golden file yet\n"
    "  disagree    caches that share it give different facts\n"
    "  obsolete    no case produces it\n"
    "  unreadable  it holds conflict markers, or was edited by hand; or case.toml has a mistake\n"
    "  stray       nobody reads it\n"
    "  unaccounted it is not what the ledger says last of it: nobody edits one by hand\n"
    "What changed or is missing leaves a pending file, which lockstep golden review shows. "
    "Nothing\n"
    "is written when CI is set, nor with --cache, --legacy, --device or --plant. A case whose "
    "model\n"
    "file is not here is skipped, and listed. With --device the engine runs there, on the caches\n"
    "that keep rows there as the case's keep them; what has no such cache is skipped, and "
    "listed.\n";

}  // namespace

Command GoldenCheckCommand() {
  const auto values = std::make_shared<CheckFlags>();
  std::vector<Flag> flags = {{"case", "CASE", "cases to check (default: all)", &values->cases}};
  const std::vector<Flag> shared = values->golden.Flags();
  flags.insert(flags.end(), shared.begin(), shared.end());
  const std::vector<Flag> own = {
      {"--cache", "NAME", "record on this cache alone, where a case has it", &values->cache},
      {"--isa", "NAME", "kernels, instead of LOCKSTEP_ISA or the best", &values->isa},
      {"--threads", "N", "threads of the engine", IntTarget{&values->threads, 1, 64}},
      {"--device", "NAME", "record on a device: host-executor or cuda", &values->device},
      {"--legacy", "", "record on the legacy write path", &values->legacy},
      {"--plant", "FAULT", "a fault to plant into every cache, to see it found", &values->plant},
      {"--json", "", "one JSON object on standard output", &values->json}};
  flags.insert(flags.end(), own.begin(), own.end());
  return {.name = "check",
          .summary = "Record every case again and compare with the golden files",
          .flags = std::move(flags),
          .run = [values] { return RunCheck(*values); },
          .details = std::string(kDetails)};
}

}  // namespace lockstep::cli
