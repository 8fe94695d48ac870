// The three parity tests of the reference case (dotLLM pull requests #278 and #310), on every host
// cache and on several models: writing K and V straight into the cache equals the legacy update,
// for a prefill, for a decode of several steps, and the direct path is really the one that ran.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "caches/device.h"
#include "caches/registry.h"
#include "engine/story.h"
#include "engine/synthetic.h"
#include "engine/test_models.h"
#include "engine/tokenizer.h"
#include "engine/transformer.h"
#include "oracle/decorators.h"
#include "oracle/driver.h"

namespace lockstep {
namespace {

struct ParityCase {
  std::string model;  // a synthetic preset, a real file or weights of the story model
  enum class Kind { kPreset, kFile, kStory } kind = Kind::kPreset;
  std::string cache;
};

std::string CaseName(const testing::TestParamInfo<ParityCase>& param_info) {
  std::string name = param_info.param.model + "_" + param_info.param.cache;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

constexpr int32_t kRealHeadDim = 8;  // of the stories260K files

std::vector<ParityCase> Cases() {
  using enum ParityCase::Kind;
  std::vector<ParityCase> cases;
  for (const CacheSpec& spec : AllCaches()) {
    if (!spec.windows.empty()) continue;  // these models see all rows
    cases.push_back({.model = "tiny-gqa-9x3-q8_0", .cache = spec.name});
    cases.push_back({.model = "tiny-bias-qknorm-6x2-q8_0", .cache = spec.name});
    for (const StoryModel& story : StoryModels()) {
      cases.push_back({std::string(story.weights), kStory, spec.name});
    }
    if (kRealHeadDim % spec.head_dim_multiple != 0) continue;
    cases.push_back({"stories260K-q8_0.gguf", kFile, spec.name});
    cases.push_back({"stories260K-f32.gguf", kFile, spec.name});
  }
  return cases;
}

class ParityTest : public testing::TestWithParam<ParityCase> {
 protected:
  void SetUp() override {
    const ParityCase& c = GetParam();
    spec_ = ParseCacheSpec(c.cache);
    std::shared_ptr<const GgufFile> file;
    if (c.kind == ParityCase::Kind::kStory) {
      file = OpenStoryModel(StoryModelOf(c.model));
    } else if (c.kind == ParityCase::Kind::kFile) {
      LOCKSTEP_TEST_MODEL_OR_SKIP(path, c.model);
      file = GgufFile::Open(path);
    } else {
      file = MakeSyntheticModel(SyntheticPreset(c.model), 1);
    }
    options_.model = Model::Load(file);
    options_.prompt = Tokenizer::Load(*file)->EncodePrompt("Once upon a time");
    options_.compare_storage = true;
  }

  std::unique_ptr<KvCache> NewCache() const {
    const auto rows = static_cast<int32_t>(options_.prompt.size()) + options_.decode_steps;
    return spec_.make({.geometry = options_.model->config().geometry(rows),
                       .sequences = 1,
                       .device = NewDefaultDevice()});  // of its own thread
  }

  DriverResult Run() const {
    const std::unique_ptr<KvCache> direct = NewCache();
    UpdateOnlyCache legacy(NewCache());
    return RunLockstep(options_, {direct.get(), {spec_.grants_host_slots, spec_.block_size}},
                       {&legacy, {}});
  }

  CacheSpec spec_;
  DriverOptions options_;
};

TEST_P(ParityTest, PrefillDirectEqualsLegacyBitForBit) {
  const DriverResult result = Run();
  EXPECT_FALSE(result.difference) << result.difference->Sentence();
  EXPECT_EQ(result.steps, 1);
  EXPECT_EQ(result.subject.cache, result.oracle.cache);
  EXPECT_EQ(result.subject.logits, result.oracle.logits);
}

TEST_P(ParityTest, DecodeOfSeveralStepsDirectEqualsLegacyBitForBit) {
  options_.decode_steps = 12;
  const DriverResult result = Run();
  EXPECT_FALSE(result.difference) << result.difference->Sentence();
  EXPECT_EQ(result.steps, 13);
  EXPECT_EQ(result.subject.tokens, result.oracle.tokens);
  EXPECT_EQ(result.subject.cache, result.oracle.cache);
}

// Counted by a decorator of this test's own: a driver that forgot to look would not be noticed by
// the driver.
TEST_P(ParityTest, TheDirectPathIsTakenWhereverTheCacheGrantsIt) {
  const auto rows = static_cast<int32_t>(options_.prompt.size());
  options_.decode_steps = 1;
  CountingCache counting(NewCache());
  Transformer engine(options_.model);
  std::vector<int32_t> positions(options_.prompt.size());
  for (int32_t i = 0; i < rows; ++i) positions[static_cast<size_t>(i)] = i;
  engine.Forward(options_.prompt, positions, counting);

  const int64_t layers = options_.model->config().num_layers;
  const bool one_piece = spec_.block_size == 0 || rows <= spec_.block_size;
  const bool prefill_direct = spec_.grants_host_slots && one_piece;
  EXPECT_EQ(counting.total().reserve_granted, prefill_direct ? layers : 0);
  EXPECT_EQ(counting.total().commits, prefill_direct ? layers : 0);
  EXPECT_EQ(counting.total().updates, prefill_direct ? 0 : layers);

  counting.Reset();
  engine.Forward({{options_.prompt[0]}}, {{rows}}, counting);
  EXPECT_EQ(counting.total().reserve_granted, spec_.grants_host_slots ? layers : 0);
  EXPECT_EQ(counting.total().commits, spec_.grants_host_slots ? layers : 0);
  EXPECT_EQ(counting.total().updates, spec_.grants_host_slots ? 0 : layers);
}

INSTANTIATE_TEST_SUITE_P(HostCaches, ParityTest, testing::ValuesIn(Cases()), CaseName);

// A parity test that compares a path with itself passes whatever the path does: the path rule has
// to see it, on either side.
TEST(ParityRuleTest, APathComparedWithItselfIsADifference) {
  DriverOptions options;
  options.model = Model::Load(MakeSyntheticModel(SyntheticPreset("tiny-gqa-9x3-q8_0"), 1));
  options.prompt = {1, 2, 3};
  const KvGeometry geometry = options.model->config().geometry(3);
  const auto new_cache = [&] { return ParseCacheSpec("simple").make({.geometry = geometry}); };
  const PathRule direct{.grants_host_slots = true};

  UpdateOnlyCache forced_a(new_cache()), forced_b(new_cache());
  const DriverResult both_legacy = RunLockstep(options, {&forced_a, direct}, {&forced_b, {}});
  ASSERT_TRUE(both_legacy.difference);
  EXPECT_EQ(both_legacy.difference->kind, Difference::Kind::kPath);

  const auto a = new_cache(), b = new_cache();
  const DriverResult both_direct = RunLockstep(options, {a.get(), direct}, {b.get(), {}});
  ASSERT_TRUE(both_direct.difference);
  EXPECT_EQ(both_direct.difference->kind, Difference::Kind::kPath);
}

}  // namespace
}  // namespace lockstep
