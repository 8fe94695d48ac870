// What sets the families apart: what keys, tensors and names of architectures stand for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "caches/error.h"
#include "engine/model.h"
#include "engine/model/test_support.h"
#include "engine/synthetic.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kPreset = "tiny-bias-qknorm-6x2-q8_0";

EditableImage Image(std::string_view preset = kPreset) {
  return EditableImage(PresetModel(preset)->file());
}

TEST(FamilyTest, AWindowIsReadWhereTheFamilyHasOne) {
  const ModelConfig& config = PresetModel("tiny-mistral-6x2-q8_0")->config();
  EXPECT_EQ(config.window, 5);
  for (int32_t layer = 0; layer < 3; ++layer) EXPECT_EQ(config.window_of(layer), 5);
  EXPECT_EQ(PresetModel(kPreset)->config().window_of(0), 0);
  EditableImage image = Image("tiny-qwen2-3x1-q8_0");
  image.metadata["qwen2.attention.sliding_window"] = uint64_t{5};
  EXPECT_THAT(LoadError(image), HasSubstr("qwen2.attention.sliding_window"));
}

TEST(FamilyTest, GemmaHasLayersOfTwoKinds) {
  const ModelConfig& second = PresetModel("tiny-gemma2-5x1-q8_0")->config();
  EXPECT_EQ(second.activation, Activation::kGelu);
  EXPECT_EQ(second.embedding_scale, std::sqrt(96.0f));
  EXPECT_EQ(second.attention_scale, 0.0f);
  EXPECT_EQ(second.attention_cap, 5.0f);
  EXPECT_EQ(second.logit_cap, 7.0f);
  EXPECT_FALSE(second.local_rope.has_value());
  for (int32_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(second.window_of(layer), layer % 2 == 0 ? 6 : 0) << layer;
  }
  const ModelConfig& third = PresetModel("tiny-gemma3-3x1-f16")->config();
  EXPECT_EQ(third.attention_cap, 0.0f);
  EXPECT_EQ(third.logit_cap, 0.0f);
  for (int32_t layer = 0; layer < 7; ++layer) {
    EXPECT_EQ(third.window_of(layer), layer == 5 ? 0 : 5) << layer;
    EXPECT_EQ(third.rope_of(layer).theta, layer == 5 ? 1e6 : 1e4) << layer;
    EXPECT_EQ(third.rope_of(layer).linear, layer == 5 ? 8.0 : 1.0) << layer;
  }
}

TEST(FamilyTest, GemmasKeysHaveDefaultsAndBounds) {
  EditableImage image = Image("tiny-gemma2-5x1-q8_0");
  for (const char* key : {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping",
                          "gemma2.attention.sliding_window"}) {
    ASSERT_EQ(image.metadata.erase(key), 1u) << key;
  }
  image.metadata["gemma2.context_length"] = uint64_t{8192};
  const ModelConfig config = Model::Load(image.Build())->config();
  EXPECT_EQ(config.attention_cap, 50.0f);
  EXPECT_EQ(config.logit_cap, 30.0f);
  EXPECT_EQ(config.window, 4096);
  image.metadata["gemma2.attention.sliding_window_pattern"] = uint64_t{3};
  image.metadata["gemma2.rope.freq_base_swa"] = 500.0;
  const ModelConfig other = Model::Load(image.Build())->config();
  EXPECT_EQ(other.window_of(1), 4096);
  EXPECT_EQ(other.window_of(2), 0);
  EXPECT_EQ(other.rope_of(1).theta, 500.0);
  image.metadata["gemma2.rope.freq_base_swa"] = 1.0;
  image.metadata["gemma2.rope.scaling.type"] = "yarn";
  image.metadata["gemma2.rope.scaling.factor"] = 4.0;
  image.metadata["gemma2.rope.scaling.original_context_length"] = uint64_t{64};
  EXPECT_THAT(LoadError(image), HasSubstr("gemma2.rope.freq_base_swa"));
  image = Image("tiny-gemma2-5x1-q8_0");
  image.metadata["gemma2.attn_logit_softcapping"] = 0.0;
  EXPECT_THAT(LoadError(image), HasSubstr("gemma2.attn_logit_softcapping"));
  image = Image("tiny-gemma2-5x1-q8_0");
  image.Remove("blk.1.post_ffw_norm.weight");
  EXPECT_THAT(LoadError(image), HasSubstr("post_ffw_norm.weight"));
  image = Image("tiny-gemma3-3x1-f16");
  image.metadata.erase("gemma3.attention.sliding_window");
  EXPECT_THAT(LoadError(image), HasSubstr("gemma3.attention.sliding_window"));
  image = Image("tiny-gemma3-3x1-f16");
  image.metadata["gemma3.final_logit_softcapping"] = 30.0;
  EXPECT_THAT(LoadError(image), HasSubstr("gemma3.final_logit_softcapping"));
}

// query_pre_attn_scalar of the 27B sizes, which a file tells by its number of layers alone.
TEST(FamilyTest, GemmasLargestSizesDivideScoresByTheEmbeddingsShare) {
  for (const auto& [preset, layers] :
       {std::pair{"tiny-gemma2-5x1-q8_0", 46}, {"tiny-gemma3-3x1-f16", 62}}) {
    SyntheticSpec spec = SyntheticPreset(preset);
    spec.num_layers = layers;
    const auto model = Model::Load(MakeSyntheticModel(spec, 1));
    const auto share = static_cast<float>(spec.dim / spec.num_heads);
    EXPECT_EQ(model->config().attention_scale, 1.0f / std::sqrt(share));
  }
}

// Position interpolation, in each way that files say it.
TEST(FamilyTest, LinearScalingIsRead) {
  const auto linear_of = [](std::vector<std::pair<std::string, double>> factors, bool typed) {
    EditableImage image = Image();
    if (typed) image.metadata["llama.rope.scaling.type"] = "linear";
    for (const auto& [key, value] : factors) image.metadata[key] = value;
    image.metadata["llama.rope.scaling.original_context_length"] = uint64_t{128};
    return Model::Load(image.Build())->config().rope.linear;
  };
  EXPECT_EQ(linear_of({{"llama.rope.scaling.factor", 4.0}}, true), 4.0);
  EXPECT_EQ(linear_of({{"llama.rope.scaling.factor", 4.0}}, false), 4.0);
  EXPECT_EQ(linear_of({{"llama.rope.scale_linear", 2.0}}, false), 2.0);
  EXPECT_EQ(linear_of({{"llama.rope.scaling.factor", 1.0}}, true), 1.0);
  EditableImage image = Image();
  image.metadata["llama.rope.scaling.type"] = "linear";
  EXPECT_THAT(LoadError(image), HasSubstr("llama.rope.scaling.factor"));
}

// A base that grows with the text would change keys that a cache holds.
TEST(FamilyTest, DynamicNtkScalingIsRefusedByName) {
  for (const char* type : {"dynamic", "ntk"}) {
    EditableImage image = Image();
    image.metadata["llama.rope.scaling.type"] = type;
    image.metadata["llama.rope.scaling.factor"] = 4.0;
    EXPECT_THAT(LoadError(image), HasSubstr("llama.rope.scaling.type"));
    EXPECT_THAT(LoadError(image), HasSubstr("NTK scaling changes the base as a text grows"));
    EXPECT_THAT(LoadError(image), HasSubstr("rope.freq_base is the base for the whole context"));
  }
  // What a changed base says is read as it stands.
  EditableImage image = Image();
  image.metadata["llama.rope.freq_base"] = 40000.0;
  EXPECT_EQ(Model::Load(image.Build())->config().rope.theta, 40000.0);
}

std::string YarnError(std::vector<std::pair<std::string, GgufValue>> edits) {
  EditableImage image = Image();
  image.metadata["llama.rope.scaling.type"] = "yarn";
  image.metadata["llama.rope.scaling.factor"] = 4.0;
  image.metadata["llama.rope.scaling.original_context_length"] = uint64_t{64};
  for (auto& [key, value] : edits) image.metadata["llama.rope." + key] = value;
  return LoadError(image);
}

TEST(FamilyTest, YarnIsReadAndBounded) {
  const RopeFrequencies& rope = PresetModel("tiny-yarn-4x2-f16")->config().rope;
  ASSERT_TRUE(rope.yarn.has_value());
  EXPECT_EQ(rope.yarn->factor, 4.0);
  EXPECT_EQ(rope.yarn->original, 64.0);
  EXPECT_EQ(rope.yarn->fast, 32.0);
  EXPECT_EQ(rope.yarn->slow, 1.0);
  EXPECT_EQ(YarnError({}), "loaded");
  EXPECT_EQ(YarnError({{"scaling.yarn_beta_fast", 16.0}, {"scaling.yarn_ext_factor", 1.0}}),
            "loaded");
  for (const auto& [key, value] : std::vector<std::pair<std::string, GgufValue>>{
           {"scaling.factor", 0.5},
           {"scaling.original_context_length", uint64_t{0}},
           {"scaling.yarn_beta_slow", 0.0},
           {"scaling.yarn_ext_factor", 0.5},
           {"scaling.attn_factor", -1.0},
           {"freq_base", 1.0}}) {
    EXPECT_THAT(YarnError({{key, value}}), HasSubstr("llama.rope." + key));
  }
  EditableImage image = Image("tiny-llama3-4x2-bf16");
  image.metadata["llama.rope.scaling.type"] = "yarn";
  image.metadata["llama.rope.scaling.factor"] = 4.0;
  image.metadata["llama.rope.scaling.original_context_length"] = uint64_t{64};
  EXPECT_THAT(LoadError(image), HasSubstr("YaRN and tensor 'rope_freqs.weight' stand together"));
}

// The tensor is chosen by the context that the model has, not by how far a sequence gets.
TEST(FamilyTest, LongRopeTakesTheFactorsForItsContext) {
  const auto most = [](uint64_t original) {
    EditableImage image = Image("tiny-fused-4x1-f16");
    image.metadata["phi3.rope.scaling.original_context_length"] = original;
    const auto model = Model::Load(image.Build());
    EXPECT_EQ(model->config().rope.attention, double{1.19f});
    return std::ranges::max(model->config().rope.factors);
  };
  EXPECT_GT(most(64), 10.0f);
  EXPECT_GT(most(255), 10.0f);
  EXPECT_LT(most(256), 2.0f);
  EditableImage image = Image("tiny-fused-4x1-f16");
  image.Remove("rope_factors_short.weight");
  EXPECT_THAT(LoadError(image), HasSubstr("rope_factors_short.weight"));
  image = Image("tiny-fused-4x1-f16");
  image.metadata.erase("phi3.rope.scaling.original_context_length");
  EXPECT_THAT(LoadError(image), HasSubstr("phi3.rope.scaling.original_context_length"));
}

// The parts of a fused tensor are the matrices that another file has by name.
TEST(FamilyTest, FusedTensorsAreSplitByRows) {
  const auto model = PresetModel("tiny-fused-4x1-f16");
  const ModelConfig& config = model->config();
  EXPECT_EQ(config.rope.dim, 16);
  EXPECT_EQ(config.window, 0) << "512 positions of a context of 256";
  const auto row_of = [](const PackedMatrix& matrix, int32_t row) {
    std::vector<float> values;
    for (int32_t col = 0; col < matrix.cols(); ++col) {
      std::vector<float> unit(static_cast<size_t>(matrix.cols()));
      unit[static_cast<size_t>(col)] = 1;
      std::vector<float> out(static_cast<size_t>(matrix.rows()));
      float* y = out.data();
      SelectKernels("scalar").matmul(matrix, {1, matrix.cols(), unit.data(), nullptr}, 0,
                                     matrix.groups(), &y);
      values.push_back(out[static_cast<size_t>(row)]);
    }
    return values;
  };
  const auto file_row = [&](const char* name, int32_t row) {
    const GgufTensor* tensor = model->file().FindTensor(name);
    std::vector<float> values(static_cast<size_t>(tensor->shape[0]));
    DecodeWeights(
        tensor->type,
        tensor->data.subspan(static_cast<size_t>(row) * values.size() * 2, values.size() * 2),
        values);
    return values;
  };
  const LayerWeights& layer = model->layers()[1];
  EXPECT_EQ(row_of(layer.wq, 95), file_row("blk.1.attn_qkv.weight", 95));
  EXPECT_EQ(row_of(layer.wk, 0), file_row("blk.1.attn_qkv.weight", 96));
  EXPECT_EQ(row_of(layer.wv, 23), file_row("blk.1.attn_qkv.weight", 143));
  EXPECT_EQ(row_of(layer.w_gate, 103), file_row("blk.1.ffn_up.weight", 103));
  EXPECT_EQ(row_of(layer.w_up, 0), file_row("blk.1.ffn_up.weight", 104));
}

TEST(FamilyTest, FactorsOfRopeAreReadAndBounded) {
  EXPECT_EQ(PresetModel("tiny-llama3-4x2-bf16")->config().rope.factors.size(), 8u);
  EditableImage image = Image();  // heads of 32
  image.AddZeros("rope_freqs.weight", {16});
  EXPECT_THAT(LoadError(image),
              HasSubstr("tensor 'rope_freqs.weight': it divides a frequency by 0"));
}

TEST(FamilyTest, ExpertsAreReadAndAsked) {
  const ModelConfig& mixtral = PresetModel("tiny-mixtral-4x2-q8_0")->config();
  EXPECT_EQ(mixtral.num_experts, 5);
  EXPECT_EQ(mixtral.experts_used, 2);
  EXPECT_EQ(mixtral.expert_dim, 96);
  EXPECT_EQ(mixtral.hidden_dim(), 192);
  EXPECT_TRUE(mixtral.normalize_experts);
  const ModelConfig& qwen2 = PresetModel("tiny-qwen2moe-3x1-f16")->config();
  EXPECT_EQ(qwen2.expert_dim, 40);
  EXPECT_EQ(qwen2.shared_dim, 56);
  EXPECT_EQ(qwen2.hidden_dim(), 3 * 40 + 56);
  EXPECT_FALSE(qwen2.normalize_experts);
  EXPECT_TRUE(PresetModel("tiny-qwen3moe-4x1-q4_0")->config().normalize_experts);
  struct Case {
    const char* preset;
    const char* key;
    GgufValue value;
  };
  for (const Case& bad : std::vector<Case>{
           {"tiny-mixtral-4x2-q8_0", "llama.expert_used_count", uint64_t{6}},
           {"tiny-mixtral-4x2-q8_0", "llama.expert_used_count", uint64_t{0}},
           {"tiny-mixtral-4x2-q8_0", "llama.expert_shared_feed_forward_length", uint64_t{32}},
           {"tiny-mixtral-4x2-q8_0", "llama.expert_feed_forward_length", uint64_t{1} << 24},
           {"tiny-mixtral-4x2-q8_0", "llama.expert_gating_func", uint64_t{2}},
           {"tiny-mixtral-4x2-q8_0", "llama.expert_weights_norm", false},
           {"tiny-mixtral-4x2-q8_0", "llama.expert_weights_scale", 2.5},
           {"tiny-qwen2moe-3x1-f16", "qwen2moe.expert_count", uint64_t{0}},
           {"tiny-qwen2moe-3x1-f16", "qwen2moe.expert_shared_feed_forward_length", uint64_t{0}}}) {
    EditableImage image = Image(bad.preset);
    image.metadata[bad.key] = bad.value;
    EXPECT_THAT(LoadError(image), HasSubstr(bad.key));
  }
  for (const char* tensor : {"ffn_gate_inp", "ffn_gate_inp_shexp", "ffn_gate_exps", "ffn_up_exps",
                             "ffn_down_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"}) {
    EditableImage image = Image("tiny-qwen2moe-3x1-f16");
    image.Remove("blk.1." + std::string(tensor) + ".weight");
    EXPECT_THAT(LoadError(image), HasSubstr("blk.1." + std::string(tensor)));
  }
}

// What the name of an architecture stands for.
TEST(FamilyTest, FamiliesDifferInWhatNoKeySays) {
  const auto config_of = [](const char* preset) { return PresetModel(preset)->config(); };
  EXPECT_EQ(config_of("tiny-qwen2-3x1-q8_0").rope_pairing, RopePairing::kHalves);
  EXPECT_EQ(config_of("tiny-qwen3-5x1-f16").rope_pairing, RopePairing::kHalves);
  EXPECT_EQ(config_of("tiny-granite-6x3-q8_0").rope_pairing, RopePairing::kInterleaved);
  const ModelConfig smollm = config_of("tiny-smollm3-4x2-q4_0");
  EXPECT_EQ(smollm.rope_pairing, RopePairing::kInterleaved);
  for (int32_t layer = 0; layer < 5; ++layer) EXPECT_EQ(smollm.rotates(layer), layer != 3) << layer;
  const ModelConfig granite = config_of("tiny-granite-6x3-q8_0");
  EXPECT_EQ(granite.embedding_scale, 3.0f);
  EXPECT_EQ(granite.residual_scale, 0.34f);
  EXPECT_EQ(granite.logit_scale, 1.0f / 1.7f);
  EXPECT_EQ(granite.attention_scale, 0.1f);
  EXPECT_EQ(config_of("tiny-mha-4x4-f32").attention_scale, 0.0f);
}

TEST(FamilyTest, AFamilysOwnTensorsAndSwitchesAreAsked) {
  for (const auto& [preset, suffix] : {std::pair{"tiny-qwen2-3x1-q8_0", "attn_k.bias"},
                                       std::pair{"tiny-qwen3-5x1-f16", "attn_q_norm.weight"}}) {
    EditableImage image = Image(preset);
    image.Remove(std::string("blk.1.") + suffix);
    EXPECT_THAT(LoadError(image), HasSubstr(suffix));
  }
  EditableImage image = Image("tiny-granite-6x3-q8_0");
  image.metadata["granite.rope.scaling.finetuned"] = true;
  EXPECT_EQ(LoadError(image), "loaded");
  image.metadata["granite.rope.scaling.finetuned"] = false;
  EXPECT_THAT(LoadError(image), HasSubstr("granite.rope.scaling.finetuned"));
  image = Image("tiny-granite-6x3-q8_0");
  image.metadata["granite.residual_scale"] = -1.0;
  EXPECT_THAT(LoadError(image), HasSubstr("granite.residual_scale"));
  image = Image();
  image.metadata["general.architecture"] = "mamba";
  EXPECT_THAT(
      LoadError(image),
      HasSubstr("llama, qwen2, qwen3, qwen2moe, qwen3moe, smollm3, phi3, gemma2, gemma3, granite"));
}

}  // namespace
}  // namespace lockstep::testing
