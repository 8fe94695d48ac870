// lockstep golden explain: why golden files no longer hold. One explanation for each golden file
// that differs, to standard output; with --json one object, with --html a page.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "caches/error.h"
#include "caches/file_io.h"
#include "ci/lockstep/golden_commands.h"
#include "ci/lockstep/golden_explain_page.h"
#include "ci/lockstep/model_source.h"
#include "ci/lockstep/shell_word.h"
#include "engine/math.h"
#include "golden/explain.h"

namespace lockstep::cli {
namespace {

struct ExplainFlags {
  GoldenFlags golden;
  std::vector<std::string> cases;
  std::string rows;
  std::string cache;
  std::string isa;
  std::string plant;
  std::string html;
  int32_t threads = 1;
  int32_t most = 0;
  bool reference = false;
  bool json = false;

  std::string CommandLine() const {
    std::string line = "lockstep golden explain";
    for (const std::string& name : cases) line += fmt::format(" {}", ShellWord(name));
    line += golden.CommandLine();
    if (!rows.empty()) line += fmt::format(" --rows {}", ShellWord(rows));
    if (!cache.empty()) line += fmt::format(" --cache {}", ShellWord(cache));
    if (!isa.empty()) line += fmt::format(" --isa {}", ShellWord(isa));
    if (!plant.empty()) line += fmt::format(" --plant {}", ShellWord(plant));
    if (threads != 1) line += fmt::format(" --threads {}", threads);
    if (most != 0) line += fmt::format(" --most {}", most);
    return reference ? line + " --reference" : line;
  }
};

// The golden files of one case that differ; all of them where the case was named.
void ExplainCase(const ExplainFlags& flags, const Scenario& scenario, const ExplainOptions& options,
                 std::vector<Explanation>* explanations) {
  const GoldenTree& tree = flags.golden.tree;
  for (const RowsGroup& group : GroupsOf(scenario)) {
    if (!flags.rows.empty() && group.rows != flags.rows) continue;
    const bool has_cache = std::ranges::count(group.caches, flags.cache) > 0;
    if (!flags.cache.empty() && !has_cache) continue;
    const std::string path = tree.GoldenPath(scenario.name, group.rows);
    const GoldenFile golden = ParseGoldenFile(ReadWholeTextFile(path), path);
    Explanation explanation = Explain(scenario, golden, flags.cache, options);
    if (explanation.changes.empty() && flags.cases.empty()) continue;
    explanations->push_back(std::move(explanation));
    if (!flags.json) fmt::print("{}\n", ExplanationText(explanations->back()));
    std::fflush(stdout);
  }
}

ExitCode RunExplain(const ExplainFlags& flags) {
  CheckFloatingPointEnvironment();
  ExplainOptions options{.models = ModelsFolder(),
                         .kernels = &SelectKernels(flags.isa),
                         .threads = flags.threads,
                         .subject = {},
                         .reference_only = flags.reference};
  if (!flags.plant.empty()) options.subject = PlantedEngine(flags.plant);
  const GoldenTree& tree = flags.golden.tree;
  std::vector<Explanation> explanations;
  for (const std::string& name : flags.cases.empty() ? tree.CaseNames() : flags.cases) {
    if (flags.most > 0 && std::ssize(explanations) >= flags.most) break;
    const Scenario scenario = ReadScenario(tree.folder, name);
    if (const auto why = WhyNotHere(scenario, options.models)) {
      fmt::print(stderr, "{}: {}\n", name, *why);
      continue;
    }
    ExplainCase(flags, scenario, options, &explanations);
  }
  const std::string repeat = flags.CommandLine();
  if (!flags.html.empty()) WriteWholeTextFile(flags.html, ExplanationsHtml(explanations, repeat));
  const bool holds =
      std::ranges::all_of(explanations, [](const Explanation& e) { return e.changes.empty(); });
  if (flags.json) {
    fmt::print("{}", ExplanationsJson(explanations, repeat));
  } else {
    fmt::print("{}repeat: {}\n", holds ? "HOLDS: there is nothing to explain\n" : "", repeat);
  }
  return holds ? ExitCode::kHolds : ExitCode::kDifference;
}

std::string Details() {
  std::string text =
      "Says where a golden file and what is recorded now first differ, gives both values, and "
      "names "
      "the\nlikely cause with what speaks for it. The golden has digests, so its values are "
      "computed "
      "again:\nby another cache, write path or kernel table whose digests are still the golden's; "
      "else "
      "about, by\nthe reference transformer.\n\nCauses:";
  for (Cause cause : AllCauses()) text += fmt::format("\n  {}", CauseName(cause));
  return text;
}

}  // namespace

Command GoldenExplainCommand() {
  const auto values = std::make_shared<ExplainFlags>();
  std::vector<Flag> flags = {
      {"case", "CASE", "cases to explain (default: all that differ)", &values->cases}};
  const std::vector<Flag> shared = values->golden.Flags();
  flags.insert(flags.end(), shared.begin(), shared.end());
  const std::vector<Flag> own = {
      {"--rows", "ROWS", "the golden file of these rows alone: f32", &values->rows},
      {"--cache", "NAME", "explain what this cache gives (default: the first that differs)",
       &values->cache},
      {"--isa", "NAME", "kernels, instead of LOCKSTEP_ISA or the best", &values->isa},
      {"--threads", "N", "threads of the engine", IntTarget{&values->threads, 1, 64}},
      {"--plant", "FAULT", "a fault to plant into the cache, to see it explained", &values->plant},
      {"--reference", "", "compute the golden's values by the reference transformer alone",
       &values->reference},
      {"--most", "N", "stop after so many golden files (default: 0, all)",
       IntTarget{&values->most, 0}},
      {"--json", "", "one JSON object on standard output", &values->json},
      {"--html", "FILE", "a page with the map of layers and stages", &values->html}};
  flags.insert(flags.end(), own.begin(), own.end());
  return {.name = "explain",
          .summary = "Say where and why golden files differ from what is recorded now",
          .flags = std::move(flags),
          .run = [values] { return RunExplain(*values); },
          .details = Details()};
}

}  // namespace lockstep::cli
