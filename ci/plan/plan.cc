// lockstep.toml. The only source of its library that includes toml++.
#include "ci/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "caches/error.h"
#include "golden/toml_table.h"
#include "properties/conform.h"

namespace lockstep {
namespace {

constexpr std::string_view kRemedy = "docs/gate.md describes the file";
constexpr TomlTable::Range kMinutes = {.low = 1, .high = 24 * 60};

constexpr std::string_view kDefaultPlan =
    R"(# What `lockstep gate` runs where no lockstep.toml says otherwise: lockstep's caches on
# the embedded model. For a cache or a model of your own, write this into lockstep.toml and add
# plug-ins and parts, as docs/gate.md shows.

[[tier]]
name = "smoke"
minutes = 2
select = "diff"

[[tier]]
name = "full"
minutes = 15
select = "all"

[[tier]]
name = "deep"
minutes = 240
select = "all"

[[part]]
name = "verify"
run = "lockstep verify"
proof = "HOLDS: "
tiers = ["smoke", "full", "deep"]
minutes = 2

[[part]]
name = "scripts"
run = "lockstep fuzz --seconds 20 --seed {seed} --out {out}/findings"
proof = "holds"
tiers = ["smoke"]
minutes = 1

[[part]]
name = "every-target"
run = """lockstep fuzz --seconds 200 --seed {seed} --out {out}/findings \
  --target caches --target engine --target gguf --target tokenizer --target plugin"""
proof = "holds: plugin"
tiers = ["full"]
minutes = 6

[[part]]
name = "matrix"
run = "lockstep verify --matrix --json-file {out}/matrix.json --html {out}/matrix.html"
proof = "EQUAL: "
tiers = ["full", "deep"]
minutes = 5

[[part]]
name = "exhaustive"
run = "lockstep fuzz --exhaustive 2"
proof = "holds"
tiers = ["full"]
minutes = 3

[[part]]
name = "every-target-long"
run = """lockstep fuzz --seconds 9000 --seed {seed} --out {out}/findings \
  --target caches --target engine --target gguf --target tokenizer --target plugin"""
proof = "holds: plugin"
tiers = ["deep"]
minutes = 160

[[part]]
name = "exhaustive-3"
run = "lockstep fuzz --exhaustive 3"
proof = "holds"
tiers = ["deep"]
minutes = 60
)";

bool IsName(std::string_view text) {
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return std::ranges::all_of(text, is_part) && text.front() != '.' && text.front() != '-';
}

std::string NameOf(TomlTable* table) {
  const std::string name = table->Text("name");
  if (!IsName(name)) {
    table->Fail(table->Find("name"),
                fmt::format("'{}' is no name of letters, digits, '-', '_' and '.'", name));
  }
  return name;
}

// `name`, which none of `others` may have.
template <typename Named>
std::string NewName(TomlTable* table, const std::string& name, const std::vector<Named>& others) {
  if (std::ranges::find(others, name, &Named::name) != others.end()) {
    table->Fail(table->Find("name"), fmt::format("the name '{}' is there twice", name));
  }
  return name;
}

PlanTier ReadTier(TomlTable* table, const Plan& plan) {
  PlanTier tier{.name = NewName(table, NameOf(table), plan.tiers),
                .minutes = table->Number("minutes", kMinutes)};
  const std::string select = table->Text("select");
  tier.by_diff = select == "diff";
  if (!tier.by_diff && select != "all") {
    table->Fail(table->Find("select"), fmt::format("'{}' is neither diff nor all", select));
  }
  table->NothingElse();
  return tier;
}

// A list of [skips], and whether a part names it.
struct SkipList {
  std::vector<std::string> tests;
  bool is_used = false;
};
using SkipLists = std::map<std::string, SkipList, std::less<>>;

SkipLists ReadSkips(TomlTable* file) {
  SkipLists lists;
  std::optional<TomlTable> table = file->Table("skips");
  if (!table) return lists;
  for (const std::string_view name : table->Keys()) {
    std::vector<std::string> tests = table->Texts(name);
    for (const std::string& test : tests) {
      if (!test.starts_with('@')) continue;
      table->Fail(table->Find(name), fmt::format("'{}' names a list in a list; parts do", test));
    }
    lists[std::string(name)].tests = std::move(tests);
  }
  return lists;
}

// What a part may skip: patterns, and lists by "@name".
std::vector<std::string> ReadMaySkip(TomlTable* table, SkipLists* lists) {
  std::vector<std::string> tests;
  const auto add = [&](const std::string& test) {
    if (std::ranges::find(tests, test) != tests.end()) {
      table->Fail(table->Find("may_skip"), fmt::format("'may_skip' has '{}' twice", test));
    }
    tests.push_back(test);
  };
  for (const std::string& text : table->Texts("may_skip")) {
    if (!text.starts_with('@')) {
      add(text);
      continue;
    }
    const auto list = lists->find(text.substr(1));
    if (list == lists->end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, tests_of_it] : *lists) names.push_back(name);
      table->Fail(table->Find("may_skip"), fmt::format("[skips] has no '{}'{}", text.substr(1),
                                                       MeantText(text.substr(1), names)));
    }
    list->second.is_used = true;
    for (const std::string& test : list->second.tests) add(test);
  }
  return tests;
}

std::vector<std::string> ReadTiers(TomlTable* table, const Plan& plan) {
  std::vector<std::string> tiers = table->Texts("tiers");
  for (const std::string& tier : tiers) {
    if (std::ranges::find(plan.tiers, tier, &PlanTier::name) != plan.tiers.end()) continue;
    std::vector<std::string_view> names;
    for (const PlanTier& other : plan.tiers) names.push_back(other.name);
    table->Fail(table->Find("tiers"),
                fmt::format("there is no tier '{}'{}", tier, MeantText(tier, names)));
  }
  return tiers;
}

PlanPart ReadPart(TomlTable* table, const Plan& plan, SkipLists* skips) {
  PlanPart part{.name = NewName(table, NameOf(table), plan.parts),
                .run = table->Text("run"),
                .proof = table->Text("proof"),
                .tiers = ReadTiers(table, plan),
                .minutes = table->Number("minutes", kMinutes),
                .paths = {}};
  if (table->Find("paths") != nullptr) part.paths = table->Texts("paths");
  if (table->Find("may_skip") != nullptr) part.may_skip = ReadMaySkip(table, skips);
  table->NothingElse();
  return part;
}

// A library as one word of a shell. dlopen looks for a name without a slash elsewhere.
std::string LibraryWord(const std::string& library) {
  std::string word = library.find('/') == library.npos ? "'./" : "'";
  for (const char c : library) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// The part that a [[plugin]] stands for.
PlanPart ReadPlugin(TomlTable* table, const Plan& plan) {
  constexpr int32_t kMinutesDefault = 5;
  PlanPart part{.name = NewName(table, "conform-" + NameOf(table), plan.parts),
                .run = {},
                .proof = "CONFORMS",
                .tiers = {},
                .minutes = kMinutesDefault,
                .paths = {}};
  if (table->Find("build") != nullptr) part.run = fmt::format("({}) && ", table->Text("build"));
  part.run += "lockstep conform " + LibraryWord(table->Text("library"));
  if (table->Find("level") != nullptr) {
    part.run += fmt::format(" --level {}", table->Number("level", {0, kConformLevelMax}));
  }
  part.run += " --seed {seed} --json-file {out}/conform.json --html {out}/conform.html";
  if (table->Find("tiers") != nullptr) {
    part.tiers = ReadTiers(table, plan);
  } else {
    for (const PlanTier& tier : plan.tiers) part.tiers.push_back(tier.name);
  }
  if (table->Find("minutes") != nullptr) part.minutes = table->Number("minutes", kMinutes);
  if (table->Find("paths") != nullptr) part.paths = table->Texts("paths");
  table->NothingElse();
  return part;
}

// Parts and plug-ins, in the order of their lines.
void ReadParts(TomlTable* file, Plan* plan) {
  SkipLists skips = ReadSkips(file);
  std::vector<TomlTable> parts = file->Tables("part");
  std::vector<TomlTable> plugins = file->Tables("plugin");
  std::vector<std::pair<TomlTable*, bool>> tables;  // whether it is a plug-in
  for (TomlTable& table : parts) tables.emplace_back(&table, false);
  for (TomlTable& table : plugins) tables.emplace_back(&table, true);
  std::ranges::stable_sort(tables, {}, [](const auto& table) { return table.first->line(); });
  for (const auto& [table, is_plugin] : tables) {
    plan->parts.push_back(is_plugin ? ReadPlugin(table, *plan) : ReadPart(table, *plan, &skips));
  }
  for (const auto& [name, list] : skips) {
    if (list.is_used) continue;
    file->Fail(file->Find("skips"), fmt::format("no part may skip '@{}'; take the list out", name));
  }
}

}  // namespace

Plan ParsePlan(std::string_view toml, std::string_view where) {
  const toml::table parsed = ParseToml(toml, where);
  TomlTable file(parsed, where, kRemedy);
  Plan plan;
  if (file.Find("ignore") != nullptr) plan.ignore = file.Texts("ignore");
  for (TomlTable& table : file.Tables("tier")) plan.tiers.push_back(ReadTier(&table, plan));
  ReadParts(&file, &plan);
  file.NothingElse();
  if (plan.tiers.empty()) file.Fail(nullptr, "there is no [[tier]]");
  for (const PlanTier& tier : plan.tiers) {
    const auto has_it = [&](const PlanPart& part) {
      return std::ranges::find(part.tiers, tier.name) != part.tiers.end();
    };
    if (std::ranges::any_of(plan.parts, has_it)) continue;
    file.Fail(nullptr, fmt::format("no part is in the tier '{}'", tier.name));
  }
  return plan;
}

const PlanTier& FindTier(const Plan& plan, std::string_view name) {
  const auto tier = std::ranges::find(plan.tiers, name, &PlanTier::name);
  if (tier != plan.tiers.end()) return *tier;
  std::string names;
  for (const PlanTier& other : plan.tiers) names += (names.empty() ? "" : ", ") + other.name;
  throw Error({"--tier", fmt::format("there is no tier '{}'", name), "one of " + names});
}

std::string_view DefaultPlan() { return kDefaultPlan; }

}  // namespace lockstep
