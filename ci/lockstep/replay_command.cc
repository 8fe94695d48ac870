// lockstep replay: runs one script, as findings print it, and says whether it still shows the
// fault. Text or JSON, told apart by the first character; cache or engine script, by the first
// word.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "caches/error.h"
#include "ci/lockstep/commands.h"
#include "ci/lockstep/finding_keeper.h"
#include "ci/lockstep/script_subject.h"
#include "properties/conform.h"
#include "properties/engine_script.h"
#include "properties/engine_script_runner.h"
#include "properties/fuzz.h"
#include "properties/script.h"

namespace lockstep::cli {
namespace {

struct ReplayFlags {
  std::string path;
  std::string cache;  // instead of the script's own
  std::string plant;
  std::string plugin;
  bool shrink = false;
  std::string export_test;
};

std::string ReadAll(const std::string& path) {
  std::string text;
  if (path == "-") {
    char buffer[1 << 16];
    while (const size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) text.append(buffer, n);
    return text;
  }
  std::ifstream file(path, std::ios::binary);
  if (file) text.assign(std::istreambuf_iterator<char>(file), {});
  if (!file || file.bad()) {
    throw Error({path, "cannot be read", "give the path of a script, or - for standard input"});
  }
  return text;
}

EngineSubject EngineSubjectFor(const ReplayFlags& flags) {
  if (!flags.plugin.empty()) return EngineOn(PluginSubject(PluginLibrary::Load(flags.plugin)));
  return flags.plant.empty() ? EngineSubject{} : PlantedEngine(flags.plant);
}

ExitCode ReplayEngine(const ReplayFlags& flags, const std::string& text, const std::string& where) {
  EngineScript script = ParseEngineScript(text, where);
  if (!flags.cache.empty()) {
    script.caches = {flags.cache};
    // Whether the model's heads suit it is checked with the rest.
    script = ParseEngineScript(EngineScriptText(script), "--cache " + flags.cache);
  }
  const EngineSubject subject = EngineSubjectFor(flags);
  EngineRun run = RunEngineScript(script, subject);
  if (!run.finding) {
    fmt::print("holds: {} operations, {} steps of {} tokens, {} rows compared with the reference\n",
               run.counts.operations, run.counts.steps, run.counts.tokens,
               run.counts.rows_compared);
    fmt::print("digest {}\n", run.digest.Hex());
    return ExitCode::kHolds;
  }
  if (flags.shrink) {
    script = ShrinkEngineScript(script, subject);
    run = RunEngineScript(script, subject);
  }
  fmt::print("FOUND after operation {}: [{}] {}\n{}", run.finding->op + 1, run.finding->clause,
             run.finding->what, EngineScriptText(script));
  return ExitCode::kDifference;
}

// What is no script, but the text of another fuzz target.
ExitCode ReplayFuzzText(const FuzzTargetInfo& info, const std::string& text,
                        const std::string& where, const ReplayFlags& flags) {
  const auto target = info.make({.plant = flags.plant});
  const auto finding = target->RunText(text, where);
  if (!finding) {
    fmt::print("holds: an input of the fuzz target {}\n", info.name);
    return ExitCode::kHolds;
  }
  const FuzzJudge judge = [&](const std::string& t) { return target->RunText(t, where); };
  fmt::print("FOUND: {}: {}\n{}", finding->place, finding->what,
             flags.shrink ? target->Shrink(text, judge) : text);
  return ExitCode::kDifference;
}

ExitCode RunReplay(const ReplayFlags& flags) {
  const std::string text = ReadAll(flags.path);
  const std::string where = flags.path == "-" ? "standard input" : flags.path;
  if (!flags.export_test.empty()) {
    WriteTextFile(flags.export_test, FuzzTestSource(text, where, flags.plant));
  }
  if (IsEngineScript(text)) return ReplayEngine(flags, text, where);
  const FuzzTargetInfo* info = FuzzTargetOfText(text);
  if (info != nullptr && info->name != "caches") return ReplayFuzzText(*info, text, where, flags);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != text.npos && text[first] == '{';
  CacheScript script = is_json ? ParseScriptJson(text, where) : ParseScript(text, where);
  if (!flags.cache.empty()) script.cache = flags.cache;
  if (!flags.plugin.empty()) script.cache = "plugin:" + flags.plugin;  // for what is printed
  const ScriptSubject subject = flags.plugin.empty()
                                    ? SubjectFor(script.cache, flags.plant)
                                    : PluginSubject(PluginLibrary::Load(flags.plugin));
  CheckRunnable(script, subject, where);

  const ScriptRun run = RunScript(script, subject);
  if (!run.finding) {
    fmt::print("holds: {} operations on {}, {} rows compared with the model\n",
               run.counts.operations, script.cache, run.counts.rows_compared);
    return ExitCode::kHolds;
  }
  if (flags.shrink) script = ShrinkScript(script, subject);
  PrintFinding(script, *RunScript(script, subject).finding);
  return ExitCode::kDifference;
}

}  // namespace

Command ReplayCommand() {
  const auto values = std::make_shared<ReplayFlags>();
  return {.name = "replay",
          .summary = "Run a script against the model cache or the reference engine",
          .flags = {{"script", "FILE", "script to run, text or JSON, - for standard input",
                     &values->path, true},
                    {"--cache", "NAME", "a cache to run it on, instead of the script's own",
                     &values->cache},
                    {"--plant", "FAULT", "a fault to plant into the cache", &values->plant},
                    {"--plugin", "LIBRARY", "run it on the cache of this shared library",
                     &values->plugin},
                    {"--shrink", "", "leave out what the finding does not need", &values->shrink},
                    {"--export-test", "FILE", "write a C++ test that runs the script",
                     &values->export_test}},
          .run = [values] { return RunReplay(*values); }};
}

}  // namespace lockstep::cli
