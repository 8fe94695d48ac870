#include "engine/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "caches/digest.h"
#include "caches/error.h"
#include "engine/model/test_support.h"
#include "engine/test_models.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kPreset = "tiny-bias-qknorm-6x2-q8_0";

EditableImage Image(std::string_view preset = kPreset) {
  return EditableImage(PresetModel(preset)->file());
}

TEST(ModelTest, ReadsEveryHyperparameter) {
  EditableImage image = Image();
  image.metadata["llama.rope.freq_base"] = 500000.0;
  image.metadata["llama.attention.layer_norm_rms_epsilon"] = 0.25;
  image.metadata["llama.rope.dimension_count"] = uint64_t{16};
  const auto model = Model::Load(image.Build());
  const ModelConfig& config = model->config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, kPreset);
  EXPECT_EQ(config.dim, 96);
  EXPECT_EQ(config.ffn_dim, 160);
  EXPECT_EQ(config.num_layers, 5);
  EXPECT_EQ(config.num_heads, 6);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rope.dim, 16);
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.context_length, 256);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rms_eps, 0.25f);
  EXPECT_FALSE(config.tied_head);
  ASSERT_EQ(model->layers().size(), 5u);
  for (const LayerWeights& layer : model->layers()) {
    EXPECT_EQ(layer.bq.size(), 192u);
    EXPECT_EQ(layer.bk.size(), 64u);
    EXPECT_EQ(layer.bv.size(), 64u);
    EXPECT_EQ(layer.q_norm.size(), 32u);
    EXPECT_EQ(layer.k_norm.size(), 32u);
    EXPECT_EQ(layer.w_down.rows(), 96);
    EXPECT_EQ(layer.w_down.cols(), 160);
  }
  EXPECT_EQ(model->output().rows(), 320);
}

// Vectors of equal length are easily taken for each other.
TEST(ModelTest, EachVectorIsTheTensorOfItsName) {
  const auto model = PresetModel(kPreset);
  const auto expect = [&](const std::string& name, const std::vector<float>& values) {
    const GgufTensor* tensor = model->file().FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(DigestOfBytes(tensor->data), DigestOfFloats(values)) << name;
  };
  for (size_t i = 0; i < model->layers().size(); ++i) {
    const LayerWeights& layer = model->layers()[i];
    const std::string prefix = "blk." + std::to_string(i) + ".";
    expect(prefix + "attn_norm.weight", layer.attn_norm);
    expect(prefix + "attn_q.bias", layer.bq);
    expect(prefix + "attn_k.bias", layer.bk);
    expect(prefix + "attn_v.bias", layer.bv);
    expect(prefix + "attn_q_norm.weight", layer.q_norm);
    expect(prefix + "attn_k_norm.weight", layer.k_norm);
    expect(prefix + "ffn_norm.weight", layer.ffn_norm);
  }
  expect("output_norm.weight", model->output_norm());
}

TEST(ModelTest, AbsentKeysHaveTheirDefaults) {
  EditableImage image = Image("tiny-mha-4x4-f32");
  for (const char* key : {"llama.attention.head_count_kv", "llama.attention.key_length",
                          "llama.attention.value_length", "llama.rope.dimension_count",
                          "llama.rope.freq_base", "llama.vocab_size", "general.name"}) {
    ASSERT_EQ(image.metadata.erase(key), 1u) << key;
  }
  const auto model = Model::Load(image.Build("some.gguf"));
  EXPECT_EQ(model->config().name, "some.gguf");
  EXPECT_EQ(model->config().num_kv_heads, 4);
  EXPECT_EQ(model->config().head_dim, 8);
  EXPECT_EQ(model->config().rope.dim, 8);
  EXPECT_EQ(model->config().rope.theta, 10000.0);
  EXPECT_TRUE(model->config().tied_head);
}

TEST(ModelTest, EmbedsTheRowOfTheToken) {
  const auto model = PresetModel("tiny-mha-4x4-f32");
  const GgufTensor* table = model->file().FindTensor("token_embd.weight");
  for (int32_t token : {0, 1, model->config().vocab_size - 1}) {
    std::vector<float> row(32);
    model->Embed(token, row);
    std::vector<float> expected(32);
    DecodeWeights(GgmlType::kF32, table->data.subspan(static_cast<size_t>(token) * 128, 128),
                  expected);
    EXPECT_EQ(Bits(row), Bits(expected)) << token;
  }
}

struct BadValue {
  std::string key;
  GgufValue value;
};

void PrintTo(const BadValue& bad, std::ostream* out) { *out << bad.key; }

class BadValueTest : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValueTest, IsRefusedByName) {
  EditableImage image = Image();
  image.metadata[GetParam().key] = GetParam().value;
  EXPECT_THAT(LoadError(image), HasSubstr(GetParam().key));
}

constexpr uint64_t kHuge = std::numeric_limits<uint32_t>::max();

INSTANTIATE_TEST_SUITE_P(
    Keys, BadValueTest,
    ::testing::Values(
        BadValue{"general.architecture", "mamba"}, BadValue{"general.architecture", uint64_t{1}},
        BadValue{"llama.embedding_length", uint64_t{0}}, BadValue{"llama.embedding_length", kHuge},
        BadValue{"llama.feed_forward_length", uint64_t{0}},
        BadValue{"llama.feed_forward_length", kHuge},
        BadValue{"llama.feed_forward_length", std::vector<int64_t>{160, 160, 160}},
        BadValue{"llama.block_count", uint64_t{0}}, BadValue{"llama.block_count", kHuge},
        BadValue{"llama.block_count", 5.0}, BadValue{"llama.context_length", uint64_t{0}},
        BadValue{"llama.context_length", kHuge},
        BadValue{"llama.attention.head_count", uint64_t{0}},
        BadValue{"llama.attention.head_count", kHuge},
        BadValue{"llama.attention.head_count_kv", uint64_t{0}},
        BadValue{"llama.attention.head_count_kv", uint64_t{4}},   // does not divide 6
        BadValue{"llama.attention.head_count_kv", uint64_t{12}},  // more than query heads
        BadValue{"llama.attention.key_length", uint64_t{0}},
        BadValue{"llama.attention.key_length", uint64_t{31}},       // odd
        BadValue{"llama.attention.key_length", uint64_t{1} << 23},  // 6 heads overflow the bound
        BadValue{"llama.attention.value_length", uint64_t{16}},
        BadValue{"llama.rope.dimension_count", uint64_t{0}},
        BadValue{"llama.rope.dimension_count", uint64_t{31}},
        BadValue{"llama.rope.dimension_count", uint64_t{34}}, BadValue{"llama.rope.freq_base", 0.0},
        BadValue{"llama.rope.freq_base", -10000.0}, BadValue{"llama.rope.freq_base", 0.5},
        BadValue{"llama.rope.freq_base", 1e16},
        BadValue{"llama.rope.freq_base", std::numeric_limits<double>::quiet_NaN()},
        BadValue{"llama.attention.layer_norm_rms_epsilon", -1e-5},
        BadValue{"llama.attention.layer_norm_rms_epsilon", 2.0},
        BadValue{"llama.attention.layer_norm_rms_epsilon", std::numeric_limits<double>::infinity()},
        BadValue{"llama.vocab_size", uint64_t{319}},
        BadValue{"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"}},
        // A function that is not computed here.
        BadValue{"llama.rope.scaling.type", "su"}, BadValue{"llama.rope.scaling.type", "longrope"},
        BadValue{"llama.rope.scaling.factor", 0.5}, BadValue{"llama.rope.scale_linear", 2e6},
        BadValue{"llama.rope.scaling.attn_factor", 2.0}, BadValue{"llama.residual_scale", 0.5},
        BadValue{"llama.rope.scaling.original_context_length", uint64_t{128}},
        BadValue{"llama.attention.sliding_window", kHuge},
        BadValue{"llama.attention.causal", false}, BadValue{"llama.expert_used_count", uint64_t{2}},
        BadValue{"llama.logit_scale", 0.5}, BadValue{"llama.some_future_key", true},
        BadValue{"split.count", uint64_t{2}}),
    [](const auto& param) {
      return TestName(param.param.key) + "_" + std::to_string(param.index);
    });

TEST(ModelTest, KeysThatMeanNotUsedAreAccepted) {
  EditableImage image = Image();
  image.metadata["llama.rope.scaling.type"] = "none";
  image.metadata["llama.rope.scaling.factor"] = 1.0;
  image.metadata["llama.attention.sliding_window"] = uint64_t{0};
  image.metadata["llama.attention.causal"] = true;
  image.metadata["llama.expert_count"] = uint64_t{0};
  image.metadata["llama.expert_used_count"] = uint64_t{0};
  image.metadata["split.count"] = uint64_t{1};
  image.metadata["mistral.attention.sliding_window"] = uint64_t{4096};  // another architecture's
  EXPECT_EQ(LoadError(image), "loaded");
}

TEST(ModelTest, MissingKeysAreNamed) {
  for (const char* key : {"general.architecture", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.block_count", "llama.context_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    EditableImage image = Image();
    ASSERT_EQ(image.metadata.erase(key), 1u) << key;
    EXPECT_THAT(LoadError(image), HasSubstr(key));
  }
}

TEST(ModelTest, AnEmbeddingThatDoesNotDivideNeedsAHeadDimension) {
  EditableImage image = Image("tiny-headdim80-2x2-bf16");
  image.metadata["llama.attention.head_count"] = uint64_t{3};
  image.metadata["llama.attention.head_count_kv"] = uint64_t{3};
  image.metadata.erase("llama.attention.key_length");
  EXPECT_THAT(LoadError(image), HasSubstr("llama.attention.key_length"));
}

TEST(ModelTest, EveryMissingTensorIsNamed) {
  for (const EditableImage::Tensor& tensor : Image().tensors) {
    // Biases, QK-norm and the head's own matrix are optional.
    if (tensor.name.ends_with(".bias") || tensor.name.ends_with("_q_norm.weight") ||
        tensor.name.ends_with("_k_norm.weight") || tensor.name == "output.weight") {
      continue;
    }
    EditableImage image = Image();
    image.Remove(tensor.name);
    EXPECT_THAT(LoadError(image), HasSubstr(tensor.name));
  }
}

TEST(ModelTest, EveryTensorOfAnotherShapeIsNamed) {
  for (const EditableImage::Tensor& tensor : Image().tensors) {
    EditableImage image = Image();
    std::vector<int64_t> longer = tensor.shape;
    longer.back() += 1;
    image.Remove(tensor.name);
    image.AddZeros(tensor.name, longer);
    // One row more of the embedding table is another vocabulary, which its tokens contradict.
    EXPECT_THAT(LoadError(image), HasSubstr(tensor.name)) << "longer";
    if (tensor.shape.size() != 2 || tensor.shape[0] == tensor.shape[1]) continue;
    image.Remove(tensor.name);
    image.AddZeros(tensor.name, {tensor.shape[1], tensor.shape[0]});
    EXPECT_THAT(LoadError(image), HasSubstr(tensor.name)) << "transposed";
  }
}

TEST(ModelTest, TensorsThatWouldBeIgnoredAreRefused) {
  for (const char* name :
       {"rope_freqs.weight", "output.bias", "output_norm.bias", "blk.0.attn_output.bias",
        "blk.1.attn_norm.bias", "blk.2.ffn_gate_inp.weight", "blk.0.ffn_gate_exps.weight",
        "blk.5.attn_norm.weight", "blk.0.attn_qkv.weight", "blk.00.attn_norm.weight", "surprise"}) {
    EditableImage image = Image();
    image.AddZeros(name, {32});
    EXPECT_THAT(LoadError(image), HasSubstr(std::string("'") + name + "'"));
  }
}

// Integers of 16 bits take the room of halves and are not weights.
TEST(ModelTest, TypesWithoutAKernelAreRefusedByTensorAndType) {
  constexpr std::string_view kName = "blk.0.attn_q.weight";
  std::vector<std::byte> bytes = MakeSyntheticImage(SyntheticPreset("tiny-mqa-4x1-f16"), 1);
  const auto name = std::as_bytes(std::span(kName));
  const auto at = std::ranges::search(bytes, name).begin() - bytes.begin();
  std::byte& type = bytes.at(static_cast<size_t>(at) + kName.size() + 4 + 2 * 8);
  ASSERT_EQ(type, std::byte{1});
  type = std::byte{25};
  try {
    Model::Load(GgufFile::FromBytes(std::move(bytes), "edited"));
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor 'blk.0.attn_q.weight': type i16 is not supported"));
  }
}

TEST(ModelTest, AnIncompleteRealFileIsRefused) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "weightless_tiny.gguf");
  EXPECT_THROW(Model::Load(GgufFile::Open(path)), Error);
}

TEST(ModelTest, OptionalTensorsMayBeAbsentOneByOne) {
  for (const char* suffix :
       {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_q_norm.weight", "attn_k_norm.weight"}) {
    EditableImage image = Image();
    image.Remove(std::string("blk.3.") + suffix);
    EXPECT_EQ(LoadError(image), "loaded") << suffix;
  }
}

}  // namespace
}  // namespace lockstep::testing
