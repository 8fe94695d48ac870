// lockstep conform: a cache of another engine, as a shared library, against the contract.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <span>

#include "caches/file_io.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/conform_page.h"
#include "ci/lockstep/progress_line.h"
#include "ci/lockstep/script_campaign.h"
#include "ci/lockstep/shell_word.h"
#include "properties/conform.h"

namespace lockstep::cli {
namespace {

using Verdict = ClauseResult::Verdict;

struct ConformFlags {
  std::string path;
  int32_t level = kConformLevelMax;
  int32_t scripts = 1500;
  std::string seed = "1";
  bool json = false;
  std::string json_file;
  std::string html;

  std::string CommandLine() const {
    return fmt::format("lockstep conform {} --level {} --scripts {} --seed {}", ShellWord(path),
                       level, scripts, ShellWord(seed));
  }

  ConformText Text(std::string plugin) const {
    return {.plugin = std::move(plugin),
            .replay = fmt::format("lockstep replay --plugin {} FILE", ShellWord(path)),
            .repeat = CommandLine()};
  }
};

void PrintTable(const ConformResult& result, const ConformText& text) {
  bool has_script = false;
  for (const ClauseResult& r : result.clauses) {
    fmt::print("{:<20} L{}  {:<26} {}\n", r.clause, r.level, ConformVerdictName(r.verdict),
               r.summary);
  }
  for (const ClauseResult& r : result.clauses) {
    if (r.what.empty()) continue;
    fmt::print("\n{}: {}\n", r.clause, r.what);
    if (r.script.ops.empty()) continue;
    fmt::print("{}", ScriptText(r.script));
    has_script = true;
  }
  fmt::print("\n{}\n", ConformSentence(result));
  if (has_script) fmt::print("a script again: {}\n", text.replay);
  fmt::print("repeat: {}\n", text.repeat);
}

// What happened when the library could not even be loaded.
ConformResult NotLoaded(const std::string& fault) {
  ConformResult result;
  result.clauses.push_back({.clause = "load",
                            .level = 0,
                            .summary = "the library can be loaded",
                            .verdict = Verdict::kFail,
                            .what = fault});
  return result;
}

ConformResult RunKit(const ConformFlags& flags, std::shared_ptr<const PluginLibrary> plugin) {
  ConformOptions options;
  options.plugin = std::move(plugin);
  options.level = flags.level;
  options.scripts = flags.scripts;
  options.seed = SeedOf(flags.seed);
  ProgressLine line;
  options.on_progress = [&](std::string_view what, int64_t done, int64_t total) {
    line.Show(fmt::format("{}: {} of {}", what, done, total));
  };
  return Conform(options);
}

void WriteText(const std::string& path, const std::string& text) {
  if (!path.empty()) WriteWholeTextFile(path, text);
}

ExitCode RunConform(const ConformFlags& flags) {
  const std::string fault = LoadFault(flags.path, ConformOptions{}.ms_max);
  const auto plugin = fault.empty() ? PluginLibrary::Load(flags.path) : nullptr;
  const ConformText text = flags.Text(plugin == nullptr ? flags.path : plugin->table().name);
  if (!flags.json) {
    fmt::print("lockstep conform: {} ({}), seed {}\n\n", text.plugin, flags.path, flags.seed);
    // Whatever is still in the buffer would be printed by every process that a script runs in.
    std::fflush(stdout);
  }
  const ConformResult result = plugin == nullptr ? NotLoaded(fault) : RunKit(flags, plugin);
  if (flags.json) {
    fmt::print("{}", ConformJson(result, text));
  } else {
    PrintTable(result, text);
  }
  WriteText(flags.json_file, ConformJson(result, text));
  WriteText(flags.html, ConformHtml(result, text));
  return result.conforms ? ExitCode::kHolds : ExitCode::kDifference;
}

}  // namespace

Command ConformCommand() {
  const auto values = std::make_shared<ConformFlags>();
  return {.name = "conform",
          .summary = "Prove a cache of another engine, a shared library with caches/plugin.h",
          .flags = {{"plugin", "LIBRARY", "the shared library", &values->path, true},
                    {"--level", "N",
                     "0 protocol and gating, 1 bytes, 2 logits, 3 sharing, 4 faults and hostile "
                     "input; each with those below",
                     IntTarget{&values->level, 0, kConformLevelMax}},
                    {"--scripts", "N", "how many", IntTarget{&values->scripts, 1}},
                    {"--seed", "X", "of the scripts: a number, or any text such as a commit hash",
                     &values->seed},
                    {"--json", "", "one JSON object on standard output", &values->json},
                    {"--json-file", "FILE", "the same in a file", &values->json_file},
                    {"--html", "FILE", "the result as a page", &values->html}},
          .run = [values] { return RunConform(*values); }};
}

}  // namespace lockstep::cli
