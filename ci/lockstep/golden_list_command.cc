// lockstep golden list and show: what the cases are, without running any.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/golden_commands.h"

namespace lockstep::cli {
namespace {

struct ShowFlags {
  GoldenFlags golden;
  std::string name;
  std::string rows;
};

ExitCode RunList(const GoldenFlags& flags) {
  for (const std::string& name : flags.tree.CaseNames()) {
    const Scenario scenario = ReadScenario(flags.tree.folder, name);
    fmt::print("{:<28} {:<32} {}\n", name, scenario.model.Description(), scenario.why);
  }
  return ExitCode::kHolds;
}

// What one golden file says, a line for each operation and step.
void PrintOutline(const GoldenFile& golden) {
  for (const Fact& fact : golden.facts) {
    const bool step = fact.step >= 0 && fact.layer < 0 &&
                      (fact.name == "input" || fact.name == "top5" || fact.name == "sum");
    if (step || fact.step < 0) fmt::print("  {} {}\n", fact.Place(), fact.value);
  }
}

void PrintScenario(const Scenario& scenario) {
  fmt::print("{}: {}\n\n", scenario.name, scenario.why);
  fmt::print("model      {}\n", scenario.model.Description());
  fmt::print("caches     {}\n", fmt::join(scenario.caches, ", "));
  fmt::print("covers     {}\n", fmt::join(scenario.covers, ", "));
  fmt::print("length     {} positions, {} tokens of an internal step\n", scenario.max_length,
             scenario.step);
  if (scenario.blocks > 0) fmt::print("pool       {} blocks\n", scenario.blocks);
  if (!scenario.prompt.empty()) fmt::print("prompt     {}\n", scenario.prompt);
  for (const ScenarioGap& gap : scenario.gaps) {
    fmt::print("gap        op {} passes over {} positions behind {} tokens\n", gap.op, gap.rows,
               gap.after);
  }
  fmt::print("digest     {}\n\n", ScenarioDigest(scenario).Hex());
  for (const EngineOp& op : scenario.ops) fmt::print("  {}\n", EngineOpText(op));
}

ExitCode RunShow(const ShowFlags& flags) {
  const GoldenTree& tree = flags.golden.tree;
  const Scenario scenario = ReadScenario(tree.folder, flags.name);
  bool shown = flags.rows.empty();
  if (shown) PrintScenario(scenario);
  for (const RowsGroup& group : GroupsOf(scenario)) {
    const std::string path = tree.GoldenPath(flags.name, group.rows);
    if (!flags.rows.empty() && group.rows != flags.rows) continue;
    const std::string text = ReadWholeTextFile(path);
    const GoldenFile golden = ParseGoldenFile(text, path);
    if (!flags.rows.empty()) {
      fmt::print("{}", text);
      shown = true;
      continue;
    }
    fmt::print("\n{}: {} facts, {} bytes, {}\n", path, golden.facts.size(), text.size(),
               golden.Identity().Hex());
    PrintOutline(FactsOfCache(golden, group.caches.front()));
  }
  if (!shown) {
    throw Error({"--rows", fmt::format("case {} has no '{}'", flags.name, flags.rows),
                 "lockstep golden show without it names the files"});
  }
  return ExitCode::kHolds;
}

}  // namespace

Command GoldenListCommand() {
  const auto values = std::make_shared<GoldenFlags>();
  return {.name = "list",
          .summary = "Name the cases, their models, and why each is there",
          .flags = values->Flags(),
          .run = [values] { return RunList(*values); }};
}

Command GoldenShowCommand() {
  const auto values = std::make_shared<ShowFlags>();
  std::vector<Flag> flags = {{"case", "CASE", "the case", &values->name, true}};
  const std::vector<Flag> shared = values->golden.Flags();
  flags.insert(flags.end(), shared.begin(), shared.end());
  flags.push_back(
      {"--rows", "ROWS", "all facts of one golden file: f32, q8_0+q4_0-w4, ...", &values->rows});
  return {.name = "show",
          .summary = "Print a case and an outline of its golden files",
          .flags = std::move(flags),
          .run = [values] { return RunShow(*values); }};
}

}  // namespace lockstep::cli
