#include "ci/lockstep/matrix_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "caches/error.h"
#include "caches/random.h"
#include "engine/synthetic.h"

namespace lockstep::cli {
namespace {

// Rows of several blocks, no blocks at all, and every stage a layer can have.
constexpr std::string_view kDefaultPresets[] = {"tiny-gqa-9x3-q8_0", "tiny-mha-4x4-f32",
                                                "tiny-bias-qknorm-6x2-q8_0"};
constexpr int32_t kPromptTokens = 40;       // cut by 7 and by 16 with a rest
constexpr int32_t kLongPromptTokens = 261;  // reductions over positions of more than one segment
constexpr int32_t kRejectedMax = 3;         // positions that a rollback gives back

// Small enough for a prompt beyond 256 positions.
SyntheticSpec LongSpec() {
  SyntheticSpec spec;
  spec.name = "long-2x1-q4_0";
  spec.dim = 32;
  spec.ffn_dim = 64;
  spec.num_layers = 2;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 32;
  spec.vocab_size = 288;
  spec.context_length = 320;
  spec.weight_type = GgmlType::kQ4_0;
  return spec;
}

std::vector<int32_t> SomeTokens(const ModelConfig& config, int32_t count, uint64_t seed) {
  Random random = Random(seed).Split(static_cast<uint64_t>(count));
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random.Below(static_cast<uint32_t>(config.vocab_size)));
  }
  return tokens;
}

std::vector<MatrixModel> FewModels(uint64_t seed) {
  std::vector<MatrixModel> models;
  for (const std::string_view preset : kDefaultPresets) {
    models.push_back(SyntheticModel(SyntheticPreset(preset), kPromptTokens, seed));
  }
  models.push_back(SyntheticModel(LongSpec(), kLongPromptTokens, seed));
  return models;
}

std::vector<MatrixModel> EveryModel(uint64_t seed) {
  std::vector<MatrixModel> models;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (!spec.name.starts_with("tiny-")) continue;
    for (MatrixModel& model :
         WithAndWithoutAdapter(SyntheticModel(spec, kPromptTokens, seed), seed)) {
      models.push_back(std::move(model));
    }
  }
  return models;
}

MatrixModel GivenModel(const MatrixFlags& flags) {
  const LoadedModel loaded = flags.source.Load();
  const int32_t more = std::max(flags.decode_steps, kRejectedMax);
  MatrixModel model{.name = "given", .model = loaded.model};
  if (!flags.prompt.empty()) {
    model.prompt = flags.source.EncodePrompt(loaded, flags.prompt, more);
  } else {
    const int32_t room = loaded.model->config().context_length - more;
    if (room < 1) {
      throw Error({"-n", fmt::format("{} decode steps leave no room in the context", more),
                   "decode fewer steps"});
    }
    model.prompt =
        SomeTokens(loaded.model->config(), std::min(kPromptTokens, room), flags.source.seed);
  }
  model.adapters = flags.adapters.Load(loaded.model->config());
  return model;
}

}  // namespace

MatrixModel SyntheticModel(const SyntheticSpec& spec, int32_t prompt_tokens, uint64_t seed) {
  MatrixModel model{.name = spec.name, .model = Model::Load(MakeSyntheticModel(spec, seed))};
  model.prompt = SomeTokens(model.model->config(), prompt_tokens, seed);
  return model;
}

std::vector<MatrixModel> WithAndWithoutAdapter(MatrixModel model, uint64_t seed) {
  MatrixModel adapted = model;
  adapted.name += " with an adapter";
  adapted.adapters = {{MakeSyntheticAdapter(adapted.model->config(), {}, seed)}};
  std::vector<MatrixModel> both;
  both.push_back(std::move(model));
  both.push_back(std::move(adapted));
  return both;
}

std::vector<MatrixModel> MatrixModelsOf(const MatrixFlags& flags) {
  if (flags.every_model && flags.source.given()) {
    throw Error({"--every-model", "a model is given too", "leave one of them out"});
  }
  if (!flags.source.given() && !flags.adapters.files.empty()) {
    throw Error({"--lora", "no model is given that it could be for",
                 "give --model or --synthetic, or --every-model, which makes adapters"});
  }
  if (flags.source.given()) return {GivenModel(flags)};
  return flags.every_model ? EveryModel(flags.source.seed) : FewModels(flags.source.seed);
}

}  // namespace lockstep::cli
