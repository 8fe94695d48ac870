#include "engine/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "caches/digest.h"
#include "caches/error.h"
#include "caches/simple_kv_cache.h"
#include "engine/generate.h"
#include "engine/model/architectures.h"
#include "engine/model/test_support.h"
#include "engine/synthetic_types.h"
#include "engine/tokenizer.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

std::vector<std::string> AllPresets() {
  std::vector<std::string> names = SmallPresets();
  names.push_back("smollm-135m");
  return names;
}

// XXH3-128 of each image with seed 1. A change here changes every recorded digest of lockstep that
// was made with a synthetic model.
const std::map<std::string_view, std::string_view>& RecordedDigests() {
  static const std::map<std::string_view, std::string_view> digests = {
      {"tiny-gqa-9x3-q8_0", "bc9b2b9cb7af10d056f3a4756f24961a"},
      {"tiny-gqa-28x4-q4_0", "e5511ce283b5d4ce4589f3c728610bf3"},
      {"tiny-mha-4x4-f32", "ce87f3c7d627454e997da8344256ad58"},
      {"tiny-ragged-3x1-f32", "a6b42d575998c4b53fa495ddb9b7ebd8"},
      {"tiny-mqa-4x1-f16", "8feee3c2687146df135045f900f0c399"},
      {"tiny-headdim80-2x2-bf16", "fcc4c50d470d0e8f5004192c88bd9e0c"},
      {"tiny-headdim128-2x1-q8_0", "d33438f818303c4f07133469df7f92f3"},
      {"tiny-segments-6x2-q8_0", "93b4862da27953fe5f3f23d02642d846"},
      {"tiny-segments-4x2-f32", "fb16dc051882d63cf33350625e17ecff"},
      {"tiny-untied-4x2-q8_0", "b6f7bf5dc522e726fa25c134440b1e23"},
      {"tiny-bias-6x2-f16", "35ed857e15c6075fe5e789073f10d702"},
      {"tiny-bias-qknorm-6x2-q8_0", "bf660da1bf612015e7f2d3f68d174567"},
      {"tiny-qwen2-3x1-q8_0", "0f90636c23d9c5215277398d534179ee"},
      {"tiny-qwen3-5x1-f16", "8bb2ba528747769d74c2339f91f9af49"},
      {"tiny-smollm3-4x2-q4_0", "f371cbf876f479e0593a8328b7d3a0b9"},
      {"tiny-granite-6x3-q8_0", "da02767065496217cfb39b5ea9fb97d0"},
      {"tiny-llama3-4x2-bf16", "0ca3c811deb1a17d332bf7587906a079"},
      {"tiny-linear-4x1-f32", "81f378f8cbfdf7a24eebe7c921a46863"},
      {"tiny-gqa-4x2-q4_1", "e6638b8a05f14b2347e824428436edb7"},
      {"tiny-gqa-3x1-q5_0", "8a65469b1210bd24ca730495e0fbce63"},
      {"tiny-gqa-4x2-q5_1", "7635f5262949df98e453885724098162"},
      {"tiny-gqa-2x1-iq4_nl", "ea1d9f399a935f16c1b8f2fc5c51f6ed"},
      {"tiny-gqa-8x1-q2_k+q3_k", "58e514b2c378c78bfe19376801d2424d"},
      {"tiny-qwen2-8x2-q5_k+iq4_xs", "f9a175742862f5b60c2afdb67b212b31"},
      {"tiny-untied-4x2-q4_k+q6_k", "0b5f9bd827b565fbf6c3ce0b6e91d4b3"},
      {"tiny-mistral-6x2-q8_0", "c60cb269be5fbe34cd2e1d8220dab556"},
      {"tiny-yarn-4x2-f16", "7c076d33490d00372347256e052a7a4d"},
      {"tiny-fused-4x1-f16", "8012fdb436286d2c934cf7ef58457106"},
      {"tiny-gemma2-5x1-q8_0", "64cc23a91889c18f740c8c05f27a527f"},
      {"tiny-gemma3-3x1-f16", "2a90d0fbf8726d11bffd9f030533edd6"},
      {"tiny-mixtral-4x2-q8_0", "8b1a3760f303328fa5dbf6ccd8ccc29f"},
      {"tiny-qwen2moe-3x1-f16", "0b25b1c7b948f60c2efba79e901b5ff6"},
      {"tiny-qwen3moe-4x1-q4_0", "062d199d14cb9cb3802e5ab4115f3d77"},
      {"smollm-135m", "2abcc273391309cc961e7a9bd10b867c"},
  };
  return digests;
}

class SyntheticDigestTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SyntheticDigestTest, IsTheRecordedOne) {
  const std::string digest =
      DigestOfBytes(MakeSyntheticImage(SyntheticPreset(GetParam()), 1)).Hex();
  const auto recorded = RecordedDigests().find(GetParam());
  ASSERT_NE(recorded, RecordedDigests().end()) << GetParam() << " has " << digest;
  EXPECT_EQ(digest, recorded->second);
}

INSTANTIATE_TEST_SUITE_P(Presets, SyntheticDigestTest, ::testing::ValuesIn(AllPresets()),
                         [](const auto& param) { return TestName(param.param); });

TEST(SyntheticPresetTest, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_EQ(&SyntheticPreset(spec.name), &spec);
  }
}

TEST(SyntheticPresetTest, AnUnknownNameListsTheKnownOnes) {
  try {
    SyntheticPreset("smollm-136m");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("smollm-136m"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("smollm-135m"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("tiny-mha-4x4-f32"));
  }
}

TEST(SyntheticPresetTest, SmolLmHasItsGeometry) {
  const SyntheticSpec& spec = SyntheticPreset("smollm-135m");
  EXPECT_EQ(spec.dim, 576);
  EXPECT_EQ(spec.ffn_dim, 1536);
  EXPECT_EQ(spec.num_layers, 30);
  EXPECT_EQ(spec.num_heads, 9);
  EXPECT_EQ(spec.num_kv_heads, 3);
  EXPECT_EQ(spec.head_dim, 64);
  EXPECT_EQ(spec.vocab_size, 49152);
  EXPECT_EQ(spec.context_length, 2048);
  EXPECT_EQ(spec.weight_type, GgmlType::kQ8_0);
  EXPECT_TRUE(spec.tied_head);
}

// The shapes that faults hide in are all there; a preset that is dropped has to be replaced.
TEST(SyntheticPresetTest, SmallOnesCoverEveryShape) {
  std::set<int32_t> groups, head_dims;
  std::set<GgmlType> types;
  bool untied = false, bias = false, qk_norm = false, ragged = false, segments = false;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.name == "smollm-135m") continue;
    EXPECT_GE(spec.num_layers, 3) << spec.name;
    groups.insert(spec.num_heads / spec.num_kv_heads);
    head_dims.insert(spec.head_dim);
    types.insert(spec.weight_type);
    types.insert(spec.wide_type.value_or(spec.weight_type));
    untied |= !spec.tied_head;
    bias |= spec.qkv_bias;
    qk_norm |= spec.qk_norm;
    ragged |= spec.dim % 16 != 0 && spec.ffn_dim % 16 != 0 && spec.vocab_size % 16 != 0;
    segments |= spec.dim > 256 && spec.dim % 256 != 0;
  }
  EXPECT_THAT(groups, ::testing::IsSupersetOf({1, 2, 3, 4, 7}));
  EXPECT_THAT(head_dims, ::testing::IsSupersetOf({8, 32, 64, 80, 128}));
  EXPECT_EQ(types.size(), 15u);
  EXPECT_TRUE(untied && bias && qk_norm && ragged && segments);
}

// Each can be made and loaded, and says what it is made of.
TEST(SyntheticTypesTest, EveryFamilyCanBeMadeInTypesOfEveryBlock) {
  std::set<std::string> architectures;
  for (const SyntheticSpec& family : SyntheticFamilies()) {
    architectures.insert(family.architecture);
    for (const GgmlType type : {GgmlType::kF16, GgmlType::kQ5_0, GgmlType::kQ4_K}) {
      const auto model = Model::Load(MakeSyntheticModel(InWeightType(family, type), 1));
      for (const GgufTensor& tensor : model->file().tensors()) {
        const bool is_router = tensor.name.find("ffn_gate_inp") != std::string::npos;
        if (tensor.shape.size() < 2 || is_router) continue;
        EXPECT_EQ(tensor.type, type) << family.name << " " << tensor.name;
      }
    }
  }
  EXPECT_EQ(architectures.size(), Architectures().size());
  EXPECT_EQ(WeightTypes().size(), 15u);
}

TEST(SyntheticTypesTest, ShapesGrowToWholeBlocksAndCachesStayAsTheyAre) {
  const SyntheticSpec& preset = SyntheticPreset("smollm-135m");
  const SyntheticSpec small = InWeightType(preset, GgmlType::kQ4_0);
  EXPECT_EQ(small.dim, 576);
  EXPECT_EQ(small.num_heads, 9);
  const SyntheticSpec large = InWeightType(preset, GgmlType::kQ4_K);
  EXPECT_EQ(large.dim, 768);
  EXPECT_EQ(large.ffn_dim, 1536);
  EXPECT_EQ(large.num_heads, 12);
  EXPECT_EQ(large.num_kv_heads, 3);
  EXPECT_EQ(large.head_dim, 64);
  EXPECT_EQ(InWeightType(SyntheticPreset("tiny-ragged-3x1-f32"), GgmlType::kBF16).dim, 44);
  EXPECT_THROW(ParseWeightType("--weights", "q9_0"), Error);
}

TEST(SyntheticImageTest, DependsOnTheSeedAlone) {
  const SyntheticSpec& spec = SyntheticPreset("tiny-mha-4x4-f32");
  EXPECT_EQ(MakeSyntheticImage(spec, 5), MakeSyntheticImage(spec, 5));
  EXPECT_NE(MakeSyntheticImage(spec, 5), MakeSyntheticImage(spec, 6));
}

class SyntheticModelTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Small, SyntheticModelTest, ::testing::ValuesIn(SmallPresets()),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(SyntheticModelTest, ItsVocabularyEncodesEveryByte) {
  const std::shared_ptr<const Model> model = PresetModel(GetParam());
  const auto tokenizer = Tokenizer::Load(model->file());
  EXPECT_EQ(tokenizer->vocab_size(), model->config().vocab_size);
  EXPECT_EQ(tokenizer->bos(), 0);
  EXPECT_EQ(tokenizer->eos(), 1);
  const std::string text = "Once upon a time, \xe2\x82\xac\x7f\n\t\x01 the end.";
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  EXPECT_EQ(tokenizer->EncodePrompt(text).front(), 0);
  // " upon" and " the" are merged tokens, so merges are exercised too.
  EXPECT_LT(tokenizer->Encode(" upon the").size(), 4u);
}

TEST_P(SyntheticModelTest, LogitsAreNotDegenerate) {
  const std::shared_ptr<const Model> model = PresetModel(GetParam());
  Transformer transformer(model);
  SimpleKvCache cache(model->config().geometry(64));
  const std::vector<int32_t> prompt = SomeTokens(model->config(), 8);
  std::span<const float> logits = transformer.Forward(prompt, Iota(0, 8), cache);
  std::set<int32_t> distinct;
  float smallest_margin = INFINITY, largest_margin = 0.0f;
  int32_t repeats = 0;
  int32_t previous = prompt.back();
  for (int32_t position = 8; position < 48; ++position) {
    std::vector<float> sorted(logits.begin(), logits.end());
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    smallest_margin = std::min(smallest_margin, sorted[0] - sorted[1]);
    largest_margin = std::max(largest_margin, sorted[0] - sorted[1]);
    const int32_t token = ArgMax(logits);
    distinct.insert(token);
    repeats += token == previous ? 1 : 0;
    previous = token;
    logits = transformer.Forward({&token, 1}, {&position, 1}, cache);
  }
  EXPECT_GE(distinct.size(), 12u);
  EXPECT_LE(repeats, 16);
  EXPECT_GT(smallest_margin, 0.0f);
  EXPECT_LT(largest_margin, 20.0f);
}

// Softmax weights of every head and layer at the last of 32 positions, in double, from the traced
// queries and keys.
std::vector<double> LargestAttentionWeights(const std::string& preset) {
  const std::shared_ptr<const Model> model = PresetModel(preset);
  const ModelConfig& config = model->config();
  constexpr int32_t kTokens = 32;
  RecordingTrace trace;
  Transformer transformer(model);
  transformer.ForwardUncached(SomeTokens(config, kTokens), &trace);
  std::vector<double> largest;
  const float* queries = nullptr;
  for (const RecordingTrace::Entry& entry : trace.entries()) {
    if (entry.stage == Stage::kQueryRope) queries = entry.rows.data();
    if (entry.stage != Stage::kKeyRope) continue;
    for (int32_t head = 0; head < config.num_heads; ++head) {
      const int32_t kv_head = head / (config.num_heads / config.num_kv_heads);
      const float* q = queries + (kTokens - 1) * config.q_dim() + head * config.head_dim;
      double sum = 0, max = 0;
      std::vector<double> scores;
      for (int32_t p = 0; p < kTokens; ++p) {
        const float* k = entry.rows.data() + p * config.kv_dim() + kv_head * config.head_dim;
        double dot = 0;
        for (int32_t d = 0; d < config.head_dim; ++d) dot += double{q[d]} * double{k[d]};
        scores.push_back(std::exp(dot / std::sqrt(config.head_dim)));
        sum += scores.back();
        max = std::max(max, scores.back());
      }
      largest.push_back(max / sum);
    }
  }
  std::sort(largest.begin(), largest.end());
  return largest;
}

TEST_P(SyntheticModelTest, AttentionIsNeitherFlatNorASingleRow) {
  const std::vector<double> largest = LargestAttentionWeights(GetParam());
  const double median = largest[largest.size() / 2];
  EXPECT_GT(median, 3.0 / 32);  // flat would be 1/32
  EXPECT_LT(median, 0.95);
  EXPECT_GT(largest.back() - largest.front(), 0.2);
}

}  // namespace
}  // namespace lockstep::testing
