// faults: plants faults into copies of this tree and says which of them the suite catches. Not for
// users of lockstep but for those who change it: ci/faults builds and starts it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/cli.h"
#include "ci/mutation/campaign.h"
#include "ci/mutation/explained.h"
#include "ci/mutation/fault.h"
#include "ci/mutation/fault_shards.h"
#include "ci/mutation/mutants.h"
#include "ci/mutation/report.h"
#include "ci/mutation/suite.h"
#include "ci/plan/plan.h"
#include "ci/shard/shard.h"
#include "reports/run_process.h"
#include "reports/table.h"

namespace lockstep::mutation {
namespace {

using cli::Command;
using cli::ExitCode;
using cli::IntTarget;

struct Flags {
  std::string root = LOCKSTEP_SOURCE_DIR;
  std::string folder = LOCKSTEP_SOURCE_DIR "/build/faults";
  int32_t jobs = 2;
  std::vector<std::string> checks;
  std::string suite;  // a tier of ci/lockstep.toml
  bool reference = false;
  std::vector<std::string> only;
  std::string markdown;
  std::string json;
  // mutants
  std::vector<std::string> files;
  uint64_t seed = 1;
  int32_t count = 100;
  bool sources = false;
  bool list = false;
  std::string shard = "1/1";
  std::string shard_file;

  std::string catalogue() const { return root + "/properties/faults"; }
};

// Those of --check and of --suite; none: the whole suite.
std::vector<std::string> ChosenBy(const Flags& flags) {
  std::vector<std::string> checks = flags.checks;
  if (flags.suite.empty()) return checks;
  const std::string file = flags.root + "/ci/lockstep.toml";
  const std::vector<std::string> of_tier =
      ChecksOfTier(ParsePlan(ReadWholeTextFile(file), file), flags.suite);
  checks.insert(checks.end(), of_tier.begin(), of_tier.end());
  return checks;
}

// The flags that ask the same again.
std::string CheckFlags(const Flags& flags) {
  std::string text;
  if (!flags.suite.empty()) text += " --suite " + flags.suite;
  for (const std::string& check : flags.checks) text += " --check " + check;
  if (flags.reference) text += " --reference";
  return text;
}

CampaignOptions OptionsFrom(const Flags& flags) {
  CampaignOptions options;
  options.workbench = {
      flags.root,
      std::filesystem::absolute(flags.folder).string(),
      {"-DCMAKE_BUILD_TYPE=Release", "-DLOCKSTEP_WERROR=ON", "-DLOCKSTEP_CUDA=OFF",
       "-DLOCKSTEP_MODELS=" LOCKSTEP_MODELS_DEFAULT, "-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=gold",
       "-DCMAKE_CXX_COMPILER_LAUNCHER=" + flags.root + "/ci/mutation/relaxed"}};
  options.jobs = flags.jobs;
  options.checks = ChosenBy(flags);
  if (std::ranges::count(options.checks, kQuickTests) > 0) {
    options.slow_tests = ReadSlowTests(flags.root + "/ci/slow_tests.txt");
  }
  options.asks_reference = options.checks.empty() || flags.reference;
  options.on_result = [](const FaultResult& result) {
    fmt::print("{}\n", ResultLine(result));
    std::fflush(stdout);
  };
  options.on_note = [](const std::string& note) { fmt::print(stderr, "faults: {}\n", note); };
  return options;
}

// What became of the shard's plantings.
void WriteShard(const Flags& flags, const std::string& command, int64_t of_all,
                const std::vector<Planting>& plantings, const std::vector<FaultResult>& results,
                const std::function<bool(const FaultResult&)>& is_missed) {
  WriteShardFile(
      flags.shard_file, flags.shard,
      ShardOfFaults(ParseShard(flags.shard), command, of_all, plantings, results, is_missed));
}

// What is common to the end of both commands.
ExitCode Finish(const Flags& flags, const CampaignResult& result, const Score& score,
                std::string_view section, const std::string& command, const std::string& tables) {
  if (!result.baseline_failure.empty()) {
    fmt::print("INCONCLUSIVE: without any fault a check fails: {}\n", result.baseline_failure);
    return ExitCode::kInconclusive;
  }
  const std::string text = ScoreText(score, result);
  fmt::print("\n{}repeat: {}\n", text, command);
  if (!flags.json.empty()) {
    WriteWholeTextFile(flags.json, ResultsJson(result.results));
  }
  if (!flags.markdown.empty()) {
    const std::string page = fmt::format("```\n$ {}\n{}```\n\n{}", command, text, tables);
    ReplaceSectionOfFile(flags.markdown, section, page);
  }
  return score.all_caught() ? ExitCode::kHolds : ExitCode::kDifference;
}

ExitCode RunPlant(const Flags& flags) {
  std::vector<Fault> faults = ReadFaults(flags.catalogue());
  std::string command = "ci/faults plant";
  for (const std::string& name : flags.only) {
    command += " --only " + name;
    const auto is_meant = [&](const Fault& f) { return f.name == name || f.class_name == name; };
    if (std::ranges::none_of(faults, is_meant)) {
      throw Error({"--only", fmt::format("'{}' is no fault and no class", name),
                   "properties/faults/ has their names"});
    }
  }
  std::erase_if(faults, [&](const Fault& fault) {
    return !flags.only.empty() && std::ranges::count(flags.only, fault.name) == 0 &&
           std::ranges::count(flags.only, fault.class_name) == 0;
  });
  command += CheckFlags(flags);
  std::vector<Planting> plantings = PlantAll(faults, flags.root);
  const int64_t of_all = KeepShard(ParseShard(flags.shard), &plantings);
  const CampaignResult result = RunCampaign(plantings, OptionsFrom(flags));
  WriteShard(flags, command, of_all, plantings, result.results,
             [](const FaultResult& r) { return r.verdict != Verdict::kCaught; });
  return Finish(
      flags, result, ScoreOf(result.results),
      flags.suite.empty() ? "planted faults" : "planted faults, suite " + flags.suite, command,
      TableMarkdown(ClassTable(result.results)) + "\n" + TableMarkdown(FaultTable(result.results)));
}

// Every source file of caches/; tests, what they are made of, and examples aside.
std::vector<std::string> MutatedFiles(const Flags& flags) {
  if (!flags.files.empty()) return flags.files;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(flags.root + "/caches")) {
    const std::string path = std::filesystem::relative(entry.path(), flags.root).string();
    const std::string extension = entry.path().extension().string();
    const bool is_test = path.find("_test") != path.npos || path.starts_with("caches/contract/") ||
                         path.starts_with("caches/examples/") || path.starts_with("caches/test_") ||
                         path.starts_with("caches/failing_new");
    const bool is_wanted = extension == ".cc" || (extension == ".h" && !flags.sources);
    if (is_wanted && !is_test) files.push_back(path);
  }
  std::ranges::sort(files);
  return files;
}

std::vector<Planting> PlantMutants(const Flags& flags, size_t* population) {
  struct Place {
    std::string file;
    Mutant mutant;
  };
  std::map<std::string, std::string> texts;  // by file
  std::vector<Place> all;
  for (const std::string& file : MutatedFiles(flags)) {
    texts[file] = ReadWholeTextFile(flags.root + "/" + file);
    for (const Mutant& mutant : FindMutants(texts[file])) all.push_back({file, mutant});
  }
  *population = all.size();
  std::vector<Planting> chosen;
  for (const size_t i : Sample(all.size(), static_cast<size_t>(flags.count), flags.seed)) {
    const auto& [file, mutant] = all[i];
    const std::string& text = texts[file];
    const std::string edited = ApplyMutant(mutant, text);
    Fault fault{.name = fmt::format("{}:{}", file, mutant.line),
                .class_name = mutant.operator_name,
                .edit = {file, TrimmedLine(text, mutant.line), TrimmedLine(edited, mutant.line)}};
    fault.says = fmt::format("`{}` becomes `{}`", fault.edit.before, fault.edit.after);
    chosen.push_back({fault, edited});
  }
  return chosen;
}

ExitCode RunMutants(const Flags& flags) {
  size_t population = 0;
  std::vector<Planting> plantings = PlantMutants(flags, &population);
  const int64_t of_all = KeepShard(ParseShard(flags.shard), &plantings);
  fmt::print("faults mutants: seed {}, {} of {} mutants\n", flags.seed, plantings.size(),
             population);
  if (flags.list) {
    for (const Planting& planting : plantings) {
      fmt::print("{} {}: {}\n", planting.fault.name, planting.fault.class_name,
                 planting.fault.says);
    }
    return ExitCode::kHolds;
  }
  const std::vector<EquivalentMutant> equivalent = ReadEquivalentMutants(flags.catalogue());
  CampaignOptions options = OptionsFrom(flags);
  options.asks_reference = flags.reference;
  options.asks_scripts = false;
  // What nobody can tell from the source takes the whole suite to survive: it is believed.
  std::vector<Planting> tried;
  std::vector<FaultResult> believed;
  for (const Planting& planting : plantings) {
    if (FindEquivalent(planting.fault, equivalent) == nullptr) {
      tried.push_back(planting);
    } else {
      believed.push_back({.fault = planting.fault, .verdict = Verdict::kMissed, .check = {}});
    }
  }
  CampaignResult result = RunCampaign(tried, options);
  result.results.insert(result.results.end(), believed.begin(), believed.end());
  std::string command =
      fmt::format("ci/faults mutants --seed {} --count {}", flags.seed, flags.count);
  if (flags.sources) command += " --sources";
  for (const std::string& file : flags.files) command += " --file " + file;
  command += CheckFlags(flags);
  WriteShard(flags, command, of_all, plantings, result.results, [&](const FaultResult& r) {
    return r.verdict != Verdict::kCaught &&
           (r.verdict != Verdict::kMissed || FindEquivalent(r.fault, equivalent) == nullptr);
  });
  for (const FaultResult& r : result.results) {
    if (r.verdict != Verdict::kMissed && r.verdict != Verdict::kTimedOut) continue;
    const EquivalentMutant* known =
        r.verdict == Verdict::kMissed ? FindEquivalent(r.fault, equivalent) : nullptr;
    fmt::print("\n{} {}: {}\n  {}\n", r.fault.name, VerdictName(r.verdict), r.fault.says,
               known == nullptr ? "not explained" : "equivalent: " + known->why);
  }
  return Finish(flags, result, ScoreOfMutants(result.results, equivalent), "mutants", command,
                TableMarkdown(MutantTable(result.results, equivalent)));
}

ExitCode RunCheck(const Flags& flags) {
  const std::vector<Fault> faults = ReadFaults(flags.catalogue());
  std::vector<std::string> problems = CheckCatalogue(faults, flags.root);
  for (const EquivalentMutant& mutant : ReadEquivalentMutants(flags.catalogue())) {
    const std::string text = ReadWholeTextFile(flags.root + "/" + mutant.file);
    if (text.find(mutant.line) != text.npos) continue;
    problems.push_back(
        fmt::format("equivalent.toml: {} has no line '{}'", mutant.file, mutant.line));
  }
  for (const std::string& problem : problems) fmt::print("{}\n", problem);
  fmt::print("{} faults, {} problems\n", faults.size(), problems.size());
  return problems.empty() ? ExitCode::kHolds : ExitCode::kDifference;
}

ExitCode RunExplain(const Flags& flags) {
  std::vector<Fault> faults = ReadFaults(flags.catalogue());
  std::erase_if(faults, [&](const Fault& fault) {
    return fault.stage.empty() ||
           (!flags.only.empty() && std::ranges::count(flags.only, fault.name) == 0 &&
            std::ranges::count(flags.only, fault.class_name) == 0);
  });
  if (faults.empty()) {
    throw Error({"--only", "names no fault of which the catalogue says how it is explained",
                 "properties/faults/README.md has the fields"});
  }
  ExplainFaultsOptions options{.workbench = OptionsFrom(flags).workbench};
  options.workbench.folder += "/explain";
  options.on_result = [](const ExplainedFault& result) {
    fmt::print("{}\n", ExplainedLine(result));
    std::fflush(stdout);
  };
  const std::vector<ExplainedFault> results = ExplainFaults(faults, options);
  std::string command = "ci/faults explain";
  for (const std::string& name : flags.only) command += " --only " + name;
  const std::string score = ExplainedScore(results);
  fmt::print("\n{}repeat: {}\n", score, command);
  if (!flags.markdown.empty()) {
    ReplaceSectionOfFile(flags.markdown, "explained faults",
                         fmt::format("```\n$ {}\n{}```\n\n{}", command, score,
                                     TableMarkdown(ExplainedTable(results))));
  }
  const auto right = [](const ExplainedFault& r) { return r.right_place && r.right_cause; };
  return std::ranges::all_of(results, right) ? ExitCode::kHolds : ExitCode::kDifference;
}

std::vector<Command> Commands() {
  const auto values = std::make_shared<Flags>();
  using FlagList = std::vector<cli::Flag>;
  const FlagList tree = {{"--root", "FOLDER", "the checkout of lockstep", &values->root}};
  const FlagList campaign = {
      {"--folder", "FOLDER", "for the copies and their builds, reused", &values->folder},
      {"--jobs", "N", "copies at the same time", IntTarget{&values->jobs, 1, 64}},
      {"--check", "NAME", "a check of the suite, once for each (default: all)", &values->checks},
      {"--suite", "TIER", "the checks that are a tier of ci/lockstep.toml, smoke say",
       &values->suite},
      {"--reference", "", "score the reference's suite too, which all checks do by default",
       &values->reference},
      {"--markdown", "FILE", "a page whose section is written anew", &values->markdown},
      {"--json-file", "FILE", "all results", &values->json},
      {"--shard", "I/N", "only every N-th fault, from the I-th", &values->shard},
      {"--shard-file", "FILE", "what ran, for lockstep merge", &values->shard_file}};
  const auto join = [](FlagList a, const FlagList& b, const FlagList& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
  };
  const FlagList plant = {
      {"--only", "NAME", "a fault or a class, once for each (default: all)", &values->only}};
  const FlagList mutants = {
      {"--seed", "X", "of the choice", &values->seed},
      {"--count", "N", "how many", IntTarget{&values->count, 1}},
      {"--file", "FILE", "a file to mutate, once for each (default: caches/)", &values->files},
      {"--sources", "", "no headers: a mutant in one builds nearly everything again",
       &values->sources},
      {"--list", "", "print the mutants and run nothing", &values->list}};
  return {{.name = "plant",
           .summary = "Plant the faults of properties/faults/, one after the other",
           .flags = join(tree, campaign, plant),
           .run = [values] { return RunPlant(*values); }},
          {.name = "mutants",
           .summary = "Plant simple mutants of caches/, chosen by a seed",
           .flags = join(tree, campaign, mutants),
           .run = [values] { return RunMutants(*values); }},
          {.name = "explain",
           .summary = "Whether lockstep golden explain knows each fault by the goldens it changes",
           .flags = join(
               tree,
               {{"--folder", "FOLDER", "for the copy and its build", &values->folder},
                {"--markdown", "FILE", "a page whose section is written anew", &values->markdown}},
               plant),
           .run = [values] { return RunExplain(*values); }},
          {.name = "check",
           .summary = "Whether every fault of the catalogue applies to the tree",
           .flags = tree,
           .run = [values] { return RunCheck(*values); }}};
}

}  // namespace
}  // namespace lockstep::mutation

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const lockstep::cli::Program program{"faults", "Mutation testing of lockstep by itself."};
  return lockstep::cli::Main(lockstep::mutation::Commands(), args, program);
}
