// lockstep conform: a cache of another engine, as a shared library, against the contract.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "ci/lockstep/commands.h"
#include "properties/conform.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using Verdict = ClauseResult::Verdict;

struct ConformFlags {
  std::string path;
  int32_t level = 3;
  int32_t scripts = 1500;
  uint64_t seed = 1;
  bool json = false;

  std::string CommandLine() const {
    return fmt::format("lockstep conform {} --level {} --scripts {} --seed {}", path, level,
                       scripts, seed);
  }
};

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kUnsupported:
      return "unsupported, as declared";
    case Verdict::kNotRun:
      return "not run at this level";
  }
  return "?";
}

void PrintJson(const ConformFlags& flags, const PluginLibrary& plugin,
               const ConformResult& result) {
  ordered_json json = {{"plugin", plugin.table().name},
                       {"conforms", result.conforms},
                       {"scripts", result.scripts},
                       {"command", flags.CommandLine()}};
  for (const ClauseResult& r : result.clauses) {
    ordered_json clause = {
        {"clause", r.clause}, {"level", r.level}, {"verdict", VerdictName(r.verdict)}};
    if (r.verdict == Verdict::kFail) {
      clause["what"] = r.what;
      if (!r.script.ops.empty()) clause["script"] = ScriptText(r.script);
    }
    json["clauses"].push_back(std::move(clause));
  }
  fmt::print("{}\n", json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

void PrintTable(const ConformFlags& flags, const ConformResult& result) {
  int64_t failed = 0;
  for (const ClauseResult& r : result.clauses) {
    failed += r.verdict == Verdict::kFail ? 1 : 0;
    fmt::print("{:<20} L{}  {:<26} {}\n", r.clause, r.level, VerdictName(r.verdict), r.summary);
  }
  for (const ClauseResult& r : result.clauses) {
    if (r.verdict != Verdict::kFail) continue;
    fmt::print("\n{}: {}\n", r.clause, r.what);
    if (!r.script.ops.empty()) fmt::print("{}", ScriptText(r.script));
  }
  if (failed == 0) {
    fmt::print("\nCONFORMS: {} scripts and nothing against it\n", result.scripts);
  } else {
    fmt::print("\nDOES NOT CONFORM: {} findings in {} scripts\n", failed, result.scripts);
    fmt::print("a script again: lockstep replay --plugin {} FILE\n", flags.path);
  }
  fmt::print("repeat: {}\n", flags.CommandLine());
}

ExitCode RunConform(const ConformFlags& flags) {
  ConformOptions options;
  options.plugin = PluginLibrary::Load(flags.path);
  options.level = flags.level;
  options.scripts = flags.scripts;
  options.seed = flags.seed;
  const bool live = isatty(STDERR_FILENO) == 1;
  if (live) {
    options.on_script = [&](int32_t script) {
      if (script % 32 == 0) fmt::print(stderr, "\r\033[Kscript {} of {}", script, flags.scripts);
    };
  }
  if (!flags.json) {
    fmt::print("lockstep conform: {} ({}), seed {}\n\n", options.plugin->table().name, flags.path,
               flags.seed);
    // Whatever is still in the buffer would be printed by every process that a script runs in.
    std::fflush(stdout);
  }
  const ConformResult result = Conform(options);
  if (live) fmt::print(stderr, "\r\033[K");
  if (flags.json) {
    PrintJson(flags, *options.plugin, result);
  } else {
    PrintTable(flags, result);
  }
  return result.conforms ? ExitCode::kHolds : ExitCode::kDifference;
}

}  // namespace

Command ConformCommand() {
  const auto values = std::make_shared<ConformFlags>();
  return {.name = "conform",
          .summary = "Prove a cache of another engine, a shared library with caches/plugin.h",
          .flags = {{"plugin", "LIBRARY", "the shared library", &values->path, true},
                    {"--level", "N",
                     "0 protocol and gating, 1 bytes, 2 logits, 3 sharing; each with those below",
                     IntTarget{&values->level, 0, 3}},
                    {"--scripts", "N", "how many", IntTarget{&values->scripts, 1}},
                    {"--seed", "X", "of the scripts", &values->seed},
                    {"--json", "", "one JSON object on standard output", &values->json}},
          .run = [values] { return RunConform(*values); }};
}

}  // namespace lockstep::cli
