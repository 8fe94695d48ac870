// case.toml, read strictly: what is not known is an error, or it would be a wish that nobody reads.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "caches/error.h"
#include "caches/file_io.h"
#include "engine/synthetic.h"
#include "golden/scenario.h"

namespace lockstep {
namespace {

constexpr std::string_view kRemedy = "golden/scenario.h describes the file";
constexpr int32_t kAny = std::numeric_limits<int32_t>::max();

struct Range {
  int32_t low = 0;
  int32_t high = kAny;
};

// One table of the file: every key that is asked for, and an error for the others.
class Table {
 public:
  Table(const toml::table& table, std::string_view where) : table_(table), where_(where) {}

  [[noreturn]] void Fail(const toml::node* node, const std::string& what) const {
    const auto line = (node == nullptr ? table_.source() : node->source()).begin.line;
    throw Error({fmt::format("{}, line {}", where_, line), what, std::string(kRemedy)});
  }

  const toml::node* Find(std::string_view key) {
    known_.insert(key);
    return table_.get(key);
  }

  const toml::node& Require(std::string_view key) {
    const toml::node* node = Find(key);
    if (node == nullptr) Fail(nullptr, fmt::format("'{}' is missing", key));
    return *node;
  }

  std::string Text(std::string_view key) {
    const toml::node& node = Require(key);
    const auto value = node.value_exact<std::string>();
    if (!value || value->empty()) Fail(&node, fmt::format("'{}' is no text", key));
    return *value;
  }

  int32_t Number(std::string_view key, const Range& range) {
    const toml::node& node = Require(key);
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < range.low || *value > range.high) {
      Fail(&node, fmt::format("'{}' is no whole number from {} to {}", key, range.low, range.high));
    }
    return static_cast<int32_t>(*value);
  }

  std::vector<std::string> Texts(std::string_view key) {
    const toml::node& node = Require(key);
    std::vector<std::string> texts;
    if (node.as_array() == nullptr) Fail(&node, fmt::format("'{}' is no list of texts", key));
    for (const toml::node& item : *node.as_array()) {
      const auto value = item.value_exact<std::string>();
      if (!value) Fail(&item, fmt::format("'{}' is no list of texts", key));
      if (std::ranges::find(texts, *value) != texts.end()) {
        Fail(&item, fmt::format("'{}' has '{}' twice", key, *value));
      }
      texts.push_back(*value);
    }
    if (texts.empty()) Fail(&node, fmt::format("'{}' is empty", key));
    return texts;
  }

  void NothingElse() const {
    for (const auto& [key, node] : table_) {
      if (known_.contains(key.str())) continue;
      Fail(&node, fmt::format("'{}' is not known here", key.str()));
    }
  }

 private:
  const toml::table& table_;
  std::string_view where_;
  std::set<std::string_view> known_;
};

ScenarioModelName ReadModel(Table* file, std::string_view where) {
  const toml::node& node = file->Require("model");
  if (node.as_table() == nullptr) file->Fail(&node, "'model' is no table [model]");
  Table table(*node.as_table(), where);
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

std::vector<ScenarioGap> ReadGaps(Table* file, std::string_view where,
                                  const std::vector<EngineOp>& ops) {
  const toml::node* node = file->Find("gap");
  std::vector<ScenarioGap> gaps;
  if (node == nullptr) return gaps;
  if (node->as_array() == nullptr) file->Fail(node, "'gap' is no list of tables [[gap]]");
  for (const toml::node& entry : *node->as_array()) {
    if (entry.as_table() == nullptr) file->Fail(&entry, "'gap' is no list of tables [[gap]]");
    Table table(*entry.as_table(), where);
    const ScenarioGap gap = {.op = table.Number("op", {}),
                             .after = table.Number("after", {.low = 1}),
                             .rows = table.Number("rows", {.low = 1})};
    table.NothingElse();
    if (gap.op >= std::ssize(ops) ||
        ops[static_cast<size_t>(gap.op)].kind != EngineOpKind::kPrefill) {
      file->Fail(&entry, fmt::format("operation {} is no prefill", gap.op));
    }
    const std::vector<int32_t>& cuts = ops[static_cast<size_t>(gap.op)].cuts;
    const auto tokens = std::accumulate(cuts.begin(), cuts.end(), int64_t{0});
    if (gap.after >= tokens) {
      file->Fail(&entry, fmt::format("operation {} has {} tokens, none behind {} of them", gap.op,
                                     tokens, gap.after));
    }
    gaps.push_back(gap);
  }
  return gaps;
}

// The line of the script's first operation: a text in three quotes begins on the next one.
std::vector<EngineOp> ReadScript(Table* file, std::string_view where) {
  const toml::node& node = file->Require("script");
  std::vector<EngineOp> ops = ParseEngineOps(file->Text("script"), where,
                                             static_cast<int32_t>(node.source().begin.line) + 1);
  if (ops.empty()) file->Fail(&node, "'script' has no operation");
  return ops;
}

bool IsSentence(std::string_view text) {
  return text.size() > 20 && text.ends_with('.') && text.find('\n') == text.npos;
}

void ReadFields(Table* file, std::string_view where, Scenario* scenario) {
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
  scenario->gaps = ReadGaps(file, where, scenario->ops);
  file->NothingElse();
}

}  // namespace

Scenario ParseScenario(std::string_view toml, std::string_view name, std::string_view where) {
  Scenario scenario;
  scenario.name = name;
  try {
    const toml::table parsed = toml::parse(toml);
    Table file(parsed, where);
    ReadFields(&file, where, &scenario);
  } catch (const toml::parse_error& error) {
    throw Error({fmt::format("{}, line {}", where, error.source().begin.line),
                 std::string(error.description()), "correct the TOML"});
  }
  return scenario;
}

Scenario ReadScenario(const std::string& folder, const std::string& name) {
  const std::string path = fmt::format("{}/{}/case.toml", folder, name);
  return ParseScenario(ReadWholeTextFile(path), name, path);
}

}  // namespace lockstep
