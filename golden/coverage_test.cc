// What golden/cases/ covers, computed from the cases themselves: every preset, weight type, cache,
// operation and tag, and that a case which claims a tag really reaches it. What they record is
// right, too: the plain reference of properties/ runs beside each case and finds nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "caches/test_paths.h"
#include "engine/synthetic.h"
#include "engine/test_models.h"
#include "golden/record.h"
#include "golden/store.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;

// What `lockstep verify` proves instead: it is too large for a golden file that people read.
constexpr std::string_view kTooLarge = "smollm-135m";

const std::vector<Scenario>& AllCases() {
  static const std::vector<Scenario> cases = [] {
    const GoldenTree tree{.folder = SourceDir() + "/golden/cases"};
    std::vector<Scenario> read;
    for (const std::string& name : tree.CaseNames()) {
      read.push_back(ReadScenario(tree.folder, name));
    }
    return read;
  }();
  return cases;
}

// A case as it ran on one cache.
struct Ran {
  const Scenario* scenario = nullptr;
  CacheSpec spec;
  std::vector<Fact> facts;

  bool Any(const std::function<bool(const Fact&)>& matches) const {
    return std::ranges::any_of(facts, matches);
  }
  bool HasGate(const std::function<bool(std::string_view)>& matches) const {
    return Any([&](const Fact& fact) { return fact.base_name() == "gate" && matches(fact.value); });
  }
  bool Grants() const {
    return HasGate([](std::string_view value) { return !value.starts_with("granted=0 "); });
  }
  bool Refuses() const {
    return HasGate([](std::string_view value) { return value.find(" refused=0 ") == value.npos; });
  }
  bool HasLength(const std::function<bool(int32_t)>& matches) const {
    return Any(
        [&](const Fact& fact) { return fact.name == "length" && matches(std::stoi(fact.value)); });
  }
  bool HasPrefill(const std::function<bool(const EngineOp&)>& matches) const {
    return std::ranges::any_of(scenario->ops, [&](const EngineOp& op) {
      return op.kind == EngineOpKind::kPrefill && matches(op);
    });
  }
};

bool HasBatchInTwoOrders(const Scenario& scenario) {
  const auto sorted = [](std::vector<int32_t> numbers) {
    std::ranges::sort(numbers);
    return numbers;
  };
  for (const EngineOp& a : scenario.ops) {
    for (const EngineOp& b : scenario.ops) {
      const bool batches = a.kind == EngineOpKind::kBatch && b.kind == EngineOpKind::kBatch;
      if (batches && a.tokens == b.tokens && a.sequences != b.sequences &&
          sorted(a.sequences) == sorted(b.sequences)) {
        return true;
      }
    }
  }
  return false;
}

using Reaches = std::function<bool(const Ran&)>;

// The tags that are no class of engine scripts.
const std::map<std::string, Reaches>& TagReaches() {
  const auto ends = [](int32_t rest) {
    return [rest](const Ran& ran) {
      const int32_t block = ran.spec.block_size;
      return block > 1 && ran.HasLength([&](int32_t length) {
        return length >= block + std::min(rest, 0) && (length - rest) % block == 0;
      });
    };
  };
  static const std::map<std::string, Reaches> reaches = {
      {"granted", [](const Ran& ran) { return ran.Grants(); }},
      {"refused_by_gap",
       [](const Ran& ran) {
         return ran.spec.name == "simple" && !ran.scenario->gaps.empty() && ran.Refuses();
       }},
      {"refused_by_block",
       [](const Ran& ran) {
         return ran.spec.block_size > 1 && ran.scenario->gaps.empty() && ran.Refuses();
       }},
      {"refused_by_length",
       [](const Ran& ran) {
         return ran.Any([](const Fact& fact) { return fact.value == "out of range"; });
       }},
      {"refused_by_rows",
       [](const Ran& ran) {
         return ran.spec.window == 0 && !ran.spec.grants_host_slots && !ran.Grants() &&
                ran.Refuses();
       }},
      {"refused_by_window",
       [](const Ran& ran) { return ran.spec.window > 0 && !ran.Grants() && ran.Refuses(); }},
      {"ends_before_block", ends(-1)},
      {"ends_at_block", ends(0)},
      {"ends_behind_block", ends(1)},
      {"fills_length",
       [](const Ran& ran) {
         return ran.HasLength([&](int32_t length) { return length == ran.scenario->max_length; });
       }},
      {"whole_prefill",
       [](const Ran& ran) {
         return ran.HasPrefill(
             [](const EngineOp& op) { return op.cuts.size() == 1 && op.cuts[0] > 1; });
       }},
      {"chunked_prefill",
       [](const Ran& ran) {
         return ran.HasPrefill([](const EngineOp& op) { return op.cuts.size() > 1; });
       }},
      {"prompt", [](const Ran& ran) { return !ran.scenario->prompt.empty(); }},
      {"model_file", [](const Ran& ran) { return ran.scenario->model.preset.empty(); }},
      {"same_batch_reordered", [](const Ran& ran) { return HasBatchInTwoOrders(*ran.scenario); }}};
  return reaches;
}

// What EngineRun::digest is of, from a recording: the logits of every step and the rows after every
// operation.
Digest RunDigestOf(const Recording& recording) {
  DigestBuilder digest;
  size_t done = 0;
  for (const Fact& fact : recording.golden.facts) {
    if (fact.name != "rows") continue;
    for (; done < recording.steps.size() && recording.steps[done].op <= fact.op; ++done) {
      if (!recording.steps[done].logits.empty()) digest.AddFloats(recording.steps[done].logits);
    }
    digest.AddU64(std::stoull(fact.value.substr(0, 16), nullptr, 16));
    digest.AddU64(std::stoull(fact.value.substr(16), nullptr, 16));
  }
  return digest.Finish();
}

// The classes that a case reaches, that the reference agrees with it, and that it is what was
// recorded.
void RunBesideTheReference(const Ran& ran, std::set<std::string>* reached) {
  const EngineScript script = ScriptOf(*ran.scenario, ran.spec.name);
  const EngineRun run = RunEngineScript(script);
  const Recording recording = Record(*ran.scenario, {.cache = ran.spec.name, .keep_values = true});
  EXPECT_EQ(RunDigestOf(recording), run.digest) << ran.scenario->name;
  EXPECT_FALSE(run.finding) << ran.scenario->name << " on " << ran.spec.name << ": "
                            << run.finding->what;
  for (size_t c = 0; c < kEngineClasses; ++c) {
    if (run.counts.classes[c] > 0) {
      reached->emplace(EngineClassName(static_cast<EngineClass>(c)));
    }
  }
}

// Which tags a case reaches, on any of its caches.
std::set<std::string> ReachedBy(const Scenario& scenario) {
  std::set<std::string> reached;
  for (const std::string& cache : scenario.caches) {
    Ran ran{&scenario, ParseCacheSpec(cache), {}};
    const RecordOptions options{.cache = cache, .models = TestModelsDirectory()};
    if (!WhyNotHere(scenario, options.models)) ran.facts = Record(scenario, options).golden.facts;
    for (const auto& [tag, reaches] : TagReaches()) {
      if (reaches(ran)) reached.insert(tag);
    }
    // Gaps and files are no engine script's.
    if (scenario.model.preset.empty() || !scenario.gaps.empty() || !scenario.prompt.empty()) {
      for (const EngineOp& op : scenario.ops) {
        if (op.kind == EngineOpKind::kPrefill) reached.insert("prefill_step");
        if (op.kind == EngineOpKind::kDecode) reached.insert("decode_step");
      }
      continue;
    }
    RunBesideTheReference(ran, &reached);
  }
  return reached;
}

TEST(CoverageTest, EveryTagIsCoveredByACaseThatReachesIt) {
  std::set<std::string> covered;
  for (const Scenario& scenario : AllCases()) {
    // Without its model file it reaches nothing here.
    if (WhyNotHere(scenario, TestModelsDirectory())) continue;
    EXPECT_THAT(ReachedBy(scenario), IsSupersetOf(scenario.covers)) << scenario.name;
    covered.insert(scenario.covers.begin(), scenario.covers.end());
  }
  for (const std::string& tag : CoverTags()) {
    EXPECT_THAT(covered, Contains(tag));
  }
}

TEST(CoverageTest, EveryPresetCacheAndOperationIsInACase) {
  std::set<std::string> presets, caches, files;
  std::set<EngineOpKind> operations;
  for (const Scenario& scenario : AllCases()) {
    presets.insert(scenario.model.preset);
    if (!scenario.model.file.empty()) files.insert(scenario.model.file);
    caches.insert(scenario.caches.begin(), scenario.caches.end());
    for (const EngineOp& op : scenario.ops) operations.insert(op.kind);
  }
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.name == kTooLarge) continue;
    EXPECT_THAT(presets, Contains(spec.name));
  }
  for (const CacheSpec& spec : AllCaches()) EXPECT_THAT(caches, Contains(spec.name));
  EXPECT_EQ(operations.size(), kEngineOpKinds);
  EXPECT_GE(files.size(), 1u);
  EXPECT_GE(AllCases().size(), 30u);
}

// Presets may change: what they are there for is asked of the cases.
TEST(CoverageTest, EveryWeightTypeAndShapeIsInACase) {
  std::set<GgmlType> types;
  std::set<int32_t> shared_heads;
  bool untied = false, bias = false, qk_norm = false, ragged = false, segments = false;
  for (const Scenario& scenario : AllCases()) {
    if (scenario.model.preset.empty()) continue;
    const SyntheticSpec& spec = SyntheticPreset(scenario.model.preset);
    types.insert(spec.weight_type);
    types.insert(spec.wide_type.value_or(spec.weight_type));
    shared_heads.insert(spec.num_heads / spec.num_kv_heads);
    untied |= !spec.tied_head;
    bias |= spec.qkv_bias;
    qk_norm |= spec.qk_norm;
    ragged |= spec.dim % 16 != 0 && spec.ffn_dim % 16 != 0 && spec.vocab_size % 16 != 0;
    segments |= spec.dim > 256 && spec.dim % 256 != 0;
  }
  for (uint32_t id = 0; id < 100; ++id) {
    const auto type = static_cast<GgmlType>(id);
    if (!TraitsOf(type)) continue;
    EXPECT_THAT(types, Contains(type)) << TraitsOf(type)->name;
  }
  EXPECT_THAT(shared_heads, IsSupersetOf({1, 2, 3, 4, 7}));
  EXPECT_TRUE(untied && bias && qk_norm && ragged && segments);
}

TEST(CoverageTest, EverySentenceIsItsCasesOwn) {
  std::set<std::string> sentences;
  std::set<Digest> digests;
  for (const Scenario& scenario : AllCases()) {
    EXPECT_TRUE(sentences.insert(scenario.why).second) << scenario.name;
    DigestBuilder digest;
    digest.AddText(ScenarioDigest(scenario).Hex());
    for (const std::string& cache : scenario.caches) digest.AddText(cache);
    EXPECT_TRUE(digests.insert(digest.Finish()).second) << scenario.name << " says nothing new";
  }
}

}  // namespace
}  // namespace lockstep
