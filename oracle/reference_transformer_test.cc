// The engine against the reference: every stage of every layer within its rounding bound, logits
// within theirs, on all small synthetic models and the real ones; and each mistake that an engine
// could make exceeds the bounds.
#include "oracle/reference_transformer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/simple_kv_cache.h"
#include "engine/model.h"
#include "engine/story.h"
#include "engine/synthetic.h"
#include "engine/test_models.h"
#include "engine/transformer.h"

namespace lockstep {
namespace {

constexpr uint64_t kSeed = 11;

std::vector<int32_t> SomeTokens(int32_t count, int32_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * 37 + 5) % vocab_size);
  return tokens;
}

std::vector<int32_t> Upto(int32_t count) {
  std::vector<int32_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

struct EngineRun {
  std::vector<float> logits;
  RecordingTrace trace;
};

EngineRun RunEngine(const std::shared_ptr<const GgufFile>& file, std::span<const int32_t> tokens,
                    std::span<const int32_t> positions) {
  const auto model = Model::Load(file);
  Transformer engine(model);
  SimpleKvCache cache(model->config().geometry(positions.back() + 1));
  EngineRun run;
  const std::span<const float> logits = engine.Forward(tokens, positions, cache, &run.trace);
  run.logits.assign(logits.begin(), logits.end());
  return run;
}

// The largest difference, relative to the largest logit of the reference.
double RelativeDifference(std::span<const float> logits, const std::vector<double>& reference) {
  double difference = 0, scale = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    difference = std::max(difference, std::fabs(logits[i] - reference[i]));
    scale = std::max(scale, std::fabs(reference[i]));
  }
  return difference / scale;
}

double Bound(const ReferenceTransformer& reference) {
  return reference.quantized() ? kQuantizedLogitsBound : kFloatLogitsBound;
}

// Models that a test compares: synthetic ones by preset, real ones by file name.
std::shared_ptr<const GgufFile> OpenModel(const std::string& name) {
  const auto story = std::ranges::find(StoryModels(), name, &StoryModel::file);
  if (story != StoryModels().end()) return OpenStoryModel(*story);
  if (!name.ends_with(".gguf")) return MakeSyntheticModel(SyntheticPreset(name), kSeed);
  return GgufFile::Open(FindTestModel(name).value());
}

std::vector<std::string> Models() {
  std::vector<std::string> names;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.dim * spec.num_layers < 4000) names.push_back(spec.name);
  }
  for (const StoryModel& story : StoryModels()) names.emplace_back(story.file);
  for (const char* file : {"stories260K-f32.gguf", "stories260K-f16.gguf", "stories260K-q8_0.gguf",
                           "stories260K-f32-untied.gguf", "stories260K-q8_0-ffn192.gguf",
                           "stories260K-q4_0-ffn192.gguf"}) {
    names.emplace_back(file);
  }
  for (const char* type : {"bf16", "q8_0", "q5_0", "q4_k_m", "q6_k"}) {
    names.push_back(fmt::format("quant/stories260K-pad256-{}.gguf", type));
  }
  return names;
}

class ReferenceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam().ends_with(".gguf") && !GetParam().starts_with("story-")) {
      LOCKSTEP_TEST_MODEL_OR_SKIP(path, GetParam());
    }
    file_ = OpenModel(GetParam());
  }
  std::shared_ptr<const GgufFile> file_;
};
INSTANTIATE_TEST_SUITE_P(, ReferenceTest, ::testing::ValuesIn(Models()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

TEST_P(ReferenceTest, EveryStageIsWithinItsRoundingBound) {
  const ReferenceTransformer reference(file_);
  const std::vector<int32_t> tokens = SomeTokens(19, 256);
  const EngineRun run = RunEngine(file_, tokens, Upto(19));
  const auto report = reference.CheckStages(tokens, run.trace.entries());
  EXPECT_EQ(report.first_failure, "");
  EXPECT_GT(report.elements, 1000);
  // Where one rounding is all there is, it comes near its half unit: the bounds are no looser.
  EXPECT_GT(report.worst_ratio, 0.3);
}

// One stage at a time, from the traced rows before it: what an explanation asks for.
TEST_P(ReferenceTest, EachStageFollowsFromItsInputs) {
  const ReferenceTransformer reference(file_);
  const std::vector<int32_t> tokens = SomeTokens(5, 256);
  const std::vector<int32_t> positions = Upto(5);
  const std::vector<int32_t> visible = {1, 2, 3, 4, 5};
  const EngineRun run = RunEngine(file_, tokens, positions);
  std::map<Stage, std::span<const float>> seen;  // the latest of each
  std::span<const float> stream, before;         // the residual stream, and what it was
  for (const RecordingTrace::Entry& entry : run.trace.entries()) {
    const std::span<const float> input = [&]() -> std::span<const float> {
      switch (entry.stage) {
        case Stage::kAttnNorm:
        case Stage::kFfnNorm:
          return stream;
        case Stage::kQuery:
        case Stage::kKey:
        case Stage::kValue:
          return seen[Stage::kAttnNorm];
        case Stage::kCacheKey:
          return seen[Stage::kKeyRope];
        case Stage::kCacheValue:
          return seen[Stage::kValue];
        case Stage::kKeyRope:
          return seen[Stage::kKey];
        case Stage::kQueryRope:
          return seen[Stage::kQuery];
        case Stage::kAttention:
          return seen[Stage::kQueryRope];
        case Stage::kFfnHidden:
          return seen[Stage::kFfnNorm];
        case Stage::kFinalNorm:
          return stream.last(stream.size() / 5);
        default:
          return before;
      }
    }();
    const ReferenceRows rows = reference.Expected({.layer = entry.layer,
                                                   .stage = entry.stage,
                                                   .tokens = tokens,
                                                   .positions = positions,
                                                   .visible = visible,
                                                   .input = input,
                                                   .stream = stream,
                                                   .router = seen[Stage::kFfnRouter],
                                                   .keys = seen[Stage::kCacheKey],
                                                   .values = seen[Stage::kCacheValue]});
    ASSERT_EQ(rows.values.size(), entry.rows.size()) << StageName(entry.stage);
    for (size_t i = 0; i < entry.rows.size(); ++i) {
      ASSERT_LE(std::fabs(entry.rows[i] - rows.values[i]), rows.bounds[i])
          << StageName(entry.stage) << " of layer " << entry.layer << ", element " << i;
    }
    seen[entry.stage] = entry.rows;
    before = entry.rows;
    if (entry.stage == Stage::kEmbedding || entry.stage == Stage::kAttnOut ||
        entry.stage == Stage::kFfnOut) {
      stream = entry.rows;
    }
  }
}

TEST_P(ReferenceTest, LogitsAreWithinTheirBound) {
  const ReferenceTransformer reference(file_);
  const std::vector<int32_t> tokens = SomeTokens(19, 256);
  const EngineRun run = RunEngine(file_, tokens, Upto(19));
  const std::vector<double> logits = reference.Logits(tokens, Upto(19));
  EXPECT_LT(RelativeDifference(run.logits, logits), Bound(reference));
}

// Rows that nobody wrote are zeros, and a query sees them [V2].
TEST_P(ReferenceTest, LogitsOverGapsAreWithinTheirBound) {
  const ReferenceTransformer reference(file_);
  const std::vector<int32_t> tokens = SomeTokens(7, 256);
  const std::vector<int32_t> gaps = {1, 2, 3, 7, 8, 20, 31};
  const EngineRun run = RunEngine(file_, tokens, gaps);
  EXPECT_LT(RelativeDifference(run.logits, reference.Logits(tokens, gaps)), Bound(reference));
}

// Whether the mistake is one for a model of this shape.
bool Applies(ReferenceFault fault, const Model& model, bool quantized) {
  const ModelConfig& config = model.config();
  if (fault == ReferenceFault::kHeadModulo) {
    return config.num_kv_heads > 1 && config.num_kv_heads < config.num_heads;
  }
  if (fault == ReferenceFault::kNoBias) return !model.layers().front().bq.empty();
  if (fault == ReferenceFault::kNoHeadNorm) return !model.layers().front().q_norm.empty();
  if (fault == ReferenceFault::kRopeEveryLayer) return config.no_rope_interval != 0;
  if (fault == ReferenceFault::kRopeUnscaled) {
    return config.rope.linear != 1 || !config.rope.factors.empty() || config.rope.yarn;
  }
  if (fault == ReferenceFault::kRopeUnstretched) return config.rope.attention != 1;
  if (fault == ReferenceFault::kRopeWholeHead) return config.rope.dim < config.head_dim;
  if (fault == ReferenceFault::kNoWindow || fault == ReferenceFault::kWindowWithoutSelf) {
    return config.window > 0 && config.window < 7;
  }
  if (fault == ReferenceFault::kLocalEveryLayer) {
    return config.full_interval != 0 && config.window < 7;
  }
  if (fault == ReferenceFault::kNextBestExperts || fault == ReferenceFault::kOtherExpertNorm) {
    return config.num_experts > 0;
  }
  if (fault == ReferenceFault::kNoSharedExpert) return config.shared_dim > 0;
  if (fault == ReferenceFault::kOtherActivation) return config.num_experts == 0;
  if (fault == ReferenceFault::kOneRopeBase) return config.local_rope.has_value();
  if (fault == ReferenceFault::kNoSoftCap) return config.logit_cap != 0;
  if (fault == ReferenceFault::kNoPostNorm) return !model.layers().front().post_attn_norm.empty();
  if (fault == ReferenceFault::kNoAdapters || fault == ReferenceFault::kUnscaledPairs) return false;
  if (fault == ReferenceFault::kNoMultipliers) return config.residual_scale != 1;
  return fault != ReferenceFault::kTruncatedCodes || quantized;
}

// Whether logits show it. All positions moved by one give the same logits, which is what RoPE is
// for; the rest changes too little to stand out from 8-bit activations, or, in the real model,
// whose queries look mostly at themselves, may do so.
bool ShowsInLogits(ReferenceFault fault, bool quantized, bool real) {
  if (fault == ReferenceFault::kRopeNextPosition) return false;
  if (fault == ReferenceFault::kEpsOutside) return !quantized && !real;
  if (fault == ReferenceFault::kTruncatedCodes) return false;
  return !(quantized && real);
}

TEST_P(ReferenceTest, EveryMistakeExceedsTheBounds) {
  const std::vector<int32_t> tokens = SomeTokens(7, 256);
  const EngineRun run = RunEngine(file_, tokens, Upto(7));
  const std::shared_ptr<const Model> model = Model::Load(file_);
  const bool real = GetParam().ends_with(".gguf");
  for (const ReferenceFault fault : AllReferenceFaults()) {
    const ReferenceTransformer faulty(file_, {.fault = fault});
    if (!Applies(fault, *model, faulty.quantized())) continue;
    SCOPED_TRACE(fmt::format("fault {}", static_cast<int>(fault)));
    const auto report = faulty.CheckStages(tokens, run.trace.entries());
    EXPECT_NE(report.first_failure, "");
    EXPECT_GT(report.worst_ratio, 20);
    if (!ShowsInLogits(fault, faulty.quantized(), real)) continue;
    EXPECT_GT(RelativeDifference(run.logits, faulty.Logits(tokens, Upto(7))), Bound(faulty));
  }
}

// More positions than the 256 of one segment of the arithmetic, most of them gaps.
TEST(ReferenceTransformerTest, StagesOverSegmentsAreWithinTheirBounds) {
  const auto file = OpenModel("tiny-segments-4x2-f32");
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < 600; p += p % 7 + 9) positions.push_back(p);
  for (int32_t p = 600; p < 604; ++p) positions.push_back(p);
  const std::vector<int32_t> tokens = SomeTokens(static_cast<int32_t>(positions.size()), 256);
  const EngineRun run = RunEngine(file, tokens, positions);
  const auto report = ReferenceTransformer(file).CheckStages(tokens, run.trace.entries());
  EXPECT_EQ(report.first_failure, "");
  EXPECT_GT(report.worst_ratio, 0.3);
}

TEST(ReferenceTransformerTest, AFailureNamesItsPlace) {
  const auto file = OpenModel("tiny-mha-4x4-f32");
  const std::vector<int32_t> tokens = SomeTokens(3, 256);
  const EngineRun run = RunEngine(file, tokens, Upto(3));
  std::vector<RecordingTrace::Entry> trace(run.trace.entries().begin(), run.trace.entries().end());
  const auto entry = std::ranges::find_if(trace, [](const RecordingTrace::Entry& e) {
    return e.layer == 1 && e.stage == Stage::kFfnHidden;
  });
  entry->rows[static_cast<size_t>(2 * entry->width + 5)] += 0x1p-10f;
  const auto report = ReferenceTransformer(file).CheckStages(tokens, trace);
  EXPECT_THAT(report.first_failure,
              ::testing::StartsWith("layer 1, ffn_hidden, row 2, element 5: "));
}

// Another engine's run of the same file and prompt, recorded in its documentation.
TEST(ReferenceTransformerTest, GivesTheRecordedLogitsOfTheRealModel) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "stories260K-f32.gguf");
  const ReferenceTransformer reference(GgufFile::Open(path));
  const std::vector<int32_t> prompt = {1, 403, 407, 261, 378};  // "Once upon a time"
  const std::vector<double> logits = reference.Logits(prompt, Upto(5));
  EXPECT_NEAR(logits[0], -10.136578, 1e-3);
  EXPECT_NEAR(logits[1], -5.329462, 1e-3);
  EXPECT_NEAR(logits[2], -10.138084, 1e-3);
  EXPECT_NEAR(logits[432], 17.799397, 1e-3);
  EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(), 432);
}

// Without rounded activations the reference is the function that the weights define.
TEST(ReferenceTransformerTest, RoundedActivationsAreAnOption) {
  const auto file = OpenModel("tiny-untied-4x2-q8_0");
  const std::vector<int32_t> tokens = SomeTokens(5, 256);
  const EngineRun run = RunEngine(file, tokens, Upto(5));
  const ReferenceTransformer plain(file, {.quantize_activations = false});
  const std::vector<double> logits = plain.Logits(tokens, Upto(5));
  EXPECT_LT(RelativeDifference(run.logits, logits), 0.2);
  EXPECT_GT(RelativeDifference(run.logits, logits), kFloatLogitsBound);
  EXPECT_NE(plain.CheckStages(tokens, run.trace.entries()).first_failure, "");
}

TEST(ReferenceTransformerTest, StagesComeInTheEnginesOrder) {
  const auto file = OpenModel("tiny-mha-4x4-f32");
  const std::vector<int32_t> tokens = SomeTokens(3, 256);
  const EngineRun run = RunEngine(file, tokens, Upto(3));
  std::vector<ReferenceRows> stages;
  ReferenceTransformer(file).Logits(tokens, Upto(3),
                                    [&](const ReferenceRows& rows) { stages.push_back(rows); });
  ASSERT_EQ(stages.size(), run.trace.entries().size());
  for (size_t i = 0; i < stages.size(); ++i) {
    const RecordingTrace::Entry& entry = run.trace.entries()[i];
    EXPECT_EQ(stages[i].layer, entry.layer);
    EXPECT_EQ(stages[i].stage, entry.stage);
    EXPECT_EQ(stages[i].values.size(), entry.rows.size());
  }
}

TEST(ReferenceTransformerTest, OtherFilesAreRefused) {
  GgufWriter other;
  other.AddString("general.architecture", "gpt2");
  EXPECT_THROW(ReferenceTransformer(GgufFile::FromBytes(other.Finish(), "other")), Error);
  GgufWriter incomplete;
  incomplete.AddString("general.architecture", "llama");
  EXPECT_THROW(ReferenceTransformer(GgufFile::FromBytes(incomplete.Finish(), "incomplete")), Error);
}

}  // namespace
}  // namespace lockstep
