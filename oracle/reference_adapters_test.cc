// LoRA adapters in the engine against the reference: every stage within its rounding bound, on
// every small model, and mistakes outside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "caches/simple_kv_cache.h"
#include "engine/adapter.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"
#include "oracle/reference_transformer.h"

namespace lockstep {
namespace {

std::vector<std::string> Presets() {
  std::vector<std::string> names;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.dim * spec.num_layers < 4000) names.push_back(spec.name);
  }
  return names;
}

class ReferenceAdaptersTest : public ::testing::TestWithParam<std::string> {
 protected:
  ReferenceAdaptersTest() {
    const ModelConfig& config = model_->config();
    const float scales[] = {0.75f, -1.25f};
    const SyntheticAdapterSpec specs[] = {{.rank = 3}, {.rank = 20, .type = GgmlType::kBF16}};
    for (uint64_t i = 0; i < 2; ++i) {
      const auto file =
          GgufFile::FromBytes(MakeSyntheticAdapterImage(config, specs[i], 7 + i), "lora");
      used_.push_back({LoraAdapter::Load(*file, config), scales[i]});
      options_.adapters.push_back({file, scales[i]});
    }
    std::iota(positions_.begin(), positions_.end(), 0);
    for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<int32_t>(i * 37 + 5) % 256;
    Transformer engine(model_);
    engine.SetAdapters(used_);
    SimpleKvCache cache(config.geometry(16));
    const auto logits = engine.Forward(tokens_, positions_, cache, &trace_);
    logits_.assign(logits.begin(), logits.end());
  }

  double LogitsError(const ReferenceTransformer& reference) const {
    const std::vector<double> expected = reference.Logits(tokens_, positions_);
    double error = 0, largest = 0;
    for (size_t i = 0; i < logits_.size(); ++i) {
      error = std::max(error, std::fabs(logits_[i] - expected[i]));
      largest = std::max(largest, std::fabs(expected[i]));
    }
    return error / largest;
  }

  const std::shared_ptr<const GgufFile> file_ = MakeSyntheticModel(SyntheticPreset(GetParam()), 11);
  const std::shared_ptr<const Model> model_ = Model::Load(file_);
  ReferenceOptions options_;
  std::vector<AppliedAdapter> used_;
  std::vector<int32_t> tokens_ = std::vector<int32_t>(9);
  std::vector<int32_t> positions_ = std::vector<int32_t>(9);
  RecordingTrace trace_;
  std::vector<float> logits_;
};

INSTANTIATE_TEST_SUITE_P(Small, ReferenceAdaptersTest, ::testing::ValuesIn(Presets()),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

TEST_P(ReferenceAdaptersTest, EveryStageAndTheLogitsAreWithinTheirBounds) {
  const ReferenceTransformer reference(file_, options_);
  const auto report = reference.CheckStages(tokens_, trace_.entries());
  EXPECT_EQ(report.first_failure, "");
  EXPECT_GT(report.worst_ratio, 0.3);
  EXPECT_LT(LogitsError(reference),
            reference.quantized() ? kQuantizedLogitsBound : kFloatLogitsBound);
}

TEST_P(ReferenceAdaptersTest, MistakesExceedTheBounds) {
  for (const ReferenceFault fault :
       {ReferenceFault::kNoAdapters, ReferenceFault::kUnscaledPairs, ReferenceFault::kNone}) {
    ReferenceOptions options = options_;
    options.fault = fault;
    // Each adapter with the other's scale.
    if (fault == ReferenceFault::kNone) {
      std::swap(options.adapters[0].scale, options.adapters[1].scale);
    }
    const auto report = ReferenceTransformer(file_, options).CheckStages(tokens_, trace_.entries());
    EXPECT_NE(report.first_failure, "") << static_cast<int>(fault);
    EXPECT_GT(report.worst_ratio, 20) << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace lockstep
