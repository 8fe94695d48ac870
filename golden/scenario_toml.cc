// case.toml.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "caches/error.h"
#include "caches/file_io.h"
#include "engine/synthetic.h"
#include "golden/scenario.h"
#include "golden/toml_table.h"

namespace lockstep {
namespace {

constexpr std::string_view kRemedy = "golden/scenario.h describes the file";

ScenarioModelName ReadModel(TomlTable* file, std::string_view where) {
  const toml::node& node = file->Require("model");
  if (node.as_table() == nullptr) file->Fail(&node, "'model' is no table [model]");
  TomlTable table(*node.as_table(), where, kRemedy);
  ScenarioModelName model;
  if (table.Find("preset") != nullptr) {
    model.preset = table.Text("preset");
    model.seed = table.Number("seed", {});
    SyntheticPreset(model.preset);
  } else {
    model.file = table.Text("file");
    model.digest = table.Text("digest");
    const bool hex = model.digest.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (model.digest.size() != 32 || !hex) {
      table.Fail(table.Find("digest"), "'digest' is no digest of 32 hexadecimal digits");
    }
  }
  table.NothingElse();
  return model;
}

std::vector<ScenarioGap> ReadGaps(TomlTable* file, const std::vector<EngineOp>& ops) {
  std::vector<ScenarioGap> gaps;
  for (TomlTable& table : file->Tables("gap")) {
    const ScenarioGap gap = {.op = table.Number("op", {}),
                             .after = table.Number("after", {.low = 1}),
                             .rows = table.Number("rows", {.low = 1})};
    table.NothingElse();
    if (gap.op >= std::ssize(ops) ||
        ops[static_cast<size_t>(gap.op)].kind != EngineOpKind::kPrefill) {
      table.Fail(nullptr, fmt::format("operation {} is no prefill", gap.op));
    }
    const std::vector<int32_t>& cuts = ops[static_cast<size_t>(gap.op)].cuts;
    const auto tokens = std::accumulate(cuts.begin(), cuts.end(), int64_t{0});
    if (gap.after >= tokens) {
      table.Fail(nullptr, fmt::format("operation {} has {} tokens, none behind {} of them", gap.op,
                                      tokens, gap.after));
    }
    gaps.push_back(gap);
  }
  return gaps;
}

// The line of the script's first operation: a text in three quotes begins on the next one.
std::vector<EngineOp> ReadScript(TomlTable* file, std::string_view where) {
  const toml::node& node = file->Require("script");
  std::vector<EngineOp> ops = ParseEngineOps(file->Text("script"), where,
                                             static_cast<int32_t>(node.source().begin.line) + 1);
  if (ops.empty()) file->Fail(&node, "'script' has no operation");
  return ops;
}

bool IsSentence(std::string_view text) {
  return text.size() > 20 && text.ends_with('.') && text.find('\n') == text.npos;
}

void ReadFields(TomlTable* file, std::string_view where, Scenario* scenario) {
  scenario->why = file->Text("why");
  if (!IsSentence(scenario->why)) file->Fail(file->Find("why"), "'why' is no sentence in one line");
  scenario->covers = file->Texts("covers");
  for (const std::string& tag : scenario->covers) {
    if (std::ranges::find(CoverTags(), tag) != CoverTags().end()) continue;
    file->Fail(file->Find("covers"), fmt::format("'covers' has '{}', which is none of {}", tag,
                                                 fmt::join(CoverTags(), ", ")));
  }
  scenario->caches = file->Texts("caches");
  for (const std::string& cache : scenario->caches) ParseCacheSpec(cache);
  scenario->max_length = file->Number("max_length", {1, 512});
  if (file->Find("step") != nullptr) scenario->step = file->Number("step", {1, 4096});
  if (file->Find("blocks") != nullptr) scenario->blocks = file->Number("blocks", {1, 4096});
  if (file->Find("prompt") != nullptr) scenario->prompt = file->Text("prompt");
  scenario->model = ReadModel(file, where);
  scenario->ops = ReadScript(file, where);
  scenario->gaps = ReadGaps(file, scenario->ops);
  file->NothingElse();
}

}  // namespace

Scenario ParseScenario(std::string_view toml, std::string_view name, std::string_view where) {
  Scenario scenario;
  scenario.name = name;
  const toml::table parsed = ParseToml(toml, where);
  TomlTable file(parsed, where, kRemedy);
  ReadFields(&file, where, &scenario);
  return scenario;
}

Scenario ReadScenario(const std::string& folder, const std::string& name) {
  const std::string path = fmt::format("{}/{}/case.toml", folder, name);
  return ParseScenario(ReadWholeTextFile(path), name, path);
}

}  // namespace lockstep
