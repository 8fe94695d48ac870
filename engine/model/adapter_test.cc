// Adapter files: what is read, and what is refused with its place.
#include "engine/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "caches/error.h"
#include "engine/model/test_support.h"
#include "engine/quantize.h"
#include "engine/synthetic.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class AdapterFileTest : public ::testing::Test {
 protected:
  std::shared_ptr<const LoraAdapter> Load() const {
    return LoraAdapter::Load(*image_.Build("lora.gguf"), config_);
  }

  std::string Refusal() const {
    try {
      Load();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  // The first layer with a change of the target.
  int32_t LayerWith(AdapterTarget target) const {
    const auto adapter = Load();
    int32_t layer = 0;
    while (adapter->Find(layer, target) == nullptr) ++layer;
    return layer;
  }

  std::string Name(AdapterTarget target, char half) const {
    return "blk." + std::to_string(LayerWith(target)) + "." +
           std::string(AdapterTensorName(target)) + ".lora_" + half;
  }

  const std::shared_ptr<const Model> model_ = PresetModel("tiny-bias-qknorm-6x2-q8_0");
  const ModelConfig& config_ = model_->config();
  EditableImage image_{
      *GgufFile::FromBytes(MakeSyntheticAdapterImage(config_, {.rank = 3}, 1), "made")};
};

TEST_F(AdapterFileTest, EveryTargetIsFoundWithItsShapeAndSomeAreLeftOut) {
  const auto adapter = Load();
  EXPECT_EQ(adapter->name(), "synthetic-lora-3/1");
  EXPECT_EQ(adapter->max_rank(), 3);
  EXPECT_TRUE(adapter->Fits(config_));
  EXPECT_FALSE(adapter->Fits(PresetModel("tiny-mha-4x4-f32")->config()));
  int64_t pairs = 0;
  std::array<int32_t, kAdapterTargets> found = {};
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    for (size_t i = 0; i < kAdapterTargets; ++i) {
      const auto target = static_cast<AdapterTarget>(i);
      const LoraPair* pair = adapter->Find(layer, target);
      if (pair == nullptr) continue;
      ++found[i];
      ++pairs;
      const MatrixShape shape = AdapterShape(config_, target);
      EXPECT_EQ(pair->a.rows(), 3);
      EXPECT_EQ(pair->a.cols(), shape.inputs);
      EXPECT_EQ(pair->b.rows(), shape.outputs);
      EXPECT_EQ(pair->b.cols(), 3);
      EXPECT_EQ(pair->scale, 0.75f);
    }
  }
  EXPECT_EQ(pairs, adapter->pairs());
  EXPECT_THAT(found, ::testing::Each(::testing::Gt(0)));
  EXPECT_LT(pairs, int64_t{config_.num_layers} * int64_t{kAdapterTargets});
}

TEST_F(AdapterFileTest, AlphaIsDividedByTheRankOfEachPair) {
  image_.metadata["adapter.lora.alpha"] = 16.0;
  const int32_t layer = LayerWith(AdapterTarget::kValue);
  EXPECT_EQ(Load()->Find(layer, AdapterTarget::kValue)->scale, 16.0f / 3.0f);
  image_.metadata["adapter.lora.alpha"] = 0.0;
  EXPECT_EQ(Load()->Find(layer, AdapterTarget::kValue)->scale, 1.0f);
}

// A quantized pair is its numbers: what it decodes to, as F32, is the same adapter.
TEST_F(AdapterFileTest, QuantizedPairsAreTheirNumbers) {
  const SyntheticAdapterSpec spec = {.rank = 32, .type = GgmlType::kQ8_0};
  const auto file = GgufFile::FromBytes(MakeSyntheticAdapterImage(config_, spec, 2), "q8_0");
  EditableImage decoded(*file);
  for (EditableImage::Tensor& tensor : decoded.tensors) {
    ASSERT_EQ(tensor.type, GgmlType::kQ8_0);
    std::vector<float> values(static_cast<size_t>(tensor.shape[0] * tensor.shape[1]));
    DecodeWeights(tensor.type, tensor.data, values);
    const auto bytes = std::as_bytes(std::span(values));
    tensor.type = GgmlType::kF32;
    tensor.data.assign(bytes.begin(), bytes.end());
  }
  const auto a = LoraAdapter::Load(*file, config_);
  const auto b = LoraAdapter::Load(*decoded.Build(), config_);
  ASSERT_EQ(a->pairs(), b->pairs());
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    const LoraPair* x = a->Find(layer, AdapterTarget::kDown);
    const LoraPair* y = b->Find(layer, AdapterTarget::kDown);
    ASSERT_EQ(x == nullptr, y == nullptr);
    if (x == nullptr) continue;
    const auto size = static_cast<size_t>(x->a.groups() * x->a.group_bytes());
    EXPECT_EQ(std::memcmp(x->a.data(), y->a.data(), size), 0);
  }
}

TEST_F(AdapterFileTest, WhatIsNoAdapterOfThisModelIsRefused) {
  const auto without = [&](std::string_view key) {
    const auto kept = image_.metadata;
    image_.metadata.erase(image_.metadata.find(key));
    const std::string refusal = Refusal();
    image_.metadata = kept;
    return refusal;
  };
  const auto with = [&](const char* key, const char* value) {
    const auto kept = image_.metadata;
    image_.metadata[key] = std::string(value);
    const std::string refusal = Refusal();
    image_.metadata = kept;
    return refusal;
  };
  EXPECT_THAT(without("general.type"), HasSubstr("lora.gguf: metadata key 'general.type'"));
  EXPECT_THAT(without("adapter.lora.alpha"), HasSubstr("'adapter.lora.alpha'"));
  EXPECT_THAT(with("general.type", "model"), HasSubstr("it is 'model' and not 'adapter'"));
  EXPECT_THAT(with("adapter.type", "control"), HasSubstr("it is 'control' and not 'lora'"));
  EXPECT_THAT(with("general.architecture", "qwen2"), HasSubstr("it is 'qwen2' and not 'llama'"));
  EXPECT_EQ(Refusal(), "accepted");
}

TEST_F(AdapterFileTest, WhatCannotBeAppliedIsRefusedWithTheTensor) {
  const auto refused = [&](const std::function<void()>& change) {
    const auto kept = image_.tensors;
    change();
    const std::string refusal = Refusal();
    image_.tensors = kept;
    return refusal;
  };
  const std::string a = Name(AdapterTarget::kKey, 'a'), b = Name(AdapterTarget::kKey, 'b');
  EXPECT_THAT(refused([&] { image_.Remove(b); }),
              HasSubstr("tensor '" + b + "': it is missing, and the other half"));
  EXPECT_THAT(refused([&] { image_.Remove(a); }), HasSubstr("tensor '" + a + "': it is missing"));
  EXPECT_THAT(refused([&] {
                image_.AddZeros("token_embd.weight.lora_a", {3, 4});
              }),
              HasSubstr("tensor 'token_embd.weight.lora_a': it changes no matrix"));
  EXPECT_THAT(refused([&] {
                image_.AddZeros("blk.5.attn_q.weight.lora_a", {96, 3});
              }),
              HasSubstr("blk.5.attn_q"));
  EXPECT_THAT(refused([&] {
                image_.AddZeros("blk.00.attn_q.weight.lora_a", {96, 3});
              }),
              HasSubstr("blk.00.attn_q"));
  EXPECT_THAT(refused([&] {
                image_.at(a).shape = {3, 96};
              }),
              HasSubstr(a + "': shape is [3, 96], not [96, 96]"));
  EXPECT_THAT(refused([&] { image_.at(a).shape = {288}; }), HasSubstr("it is no matrix"));
  EXPECT_THAT(refused([&] { std::swap(image_.at(b).shape[0], image_.at(b).shape[1]); }),
              HasSubstr(b + "': shape is"));
  EXPECT_THAT(refused([&] { image_.tensors.clear(); }), HasSubstr("it changes no matrix"));
  EXPECT_EQ(Refusal(), "accepted");
}

// Experts stay as they are: what would change one is refused by its name.
TEST(AdapterExpertsTest, AttentionAlone) {
  const auto model = PresetModel("tiny-mixtral-4x2-q8_0");
  const ModelConfig& config = model->config();
  ASSERT_GT(config.num_experts, 0);
  EditableImage image(*GgufFile::FromBytes(MakeSyntheticAdapterImage(config, {}, 1), "made"));
  const auto adapter = LoraAdapter::Load(*image.Build(), config);
  EXPECT_GT(adapter->pairs(), 0);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    EXPECT_EQ(adapter->Find(layer, AdapterTarget::kDown), nullptr);
  }
  image.AddZeros("blk.0.ffn_down.weight.lora_a", {config.dim, 3});
  EXPECT_THROW(LoraAdapter::Load(*image.Build(), config), Error);
}

}  // namespace
}  // namespace lockstep::testing
