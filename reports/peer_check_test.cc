// What the peer check compares and judges by. The whole, with engines: ci/lockstep/peer_test.cc.
#include "reports/peer_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "caches/error.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "reports/peer/distribution.h"
#include "reports/peer/gguf_copy.h"

namespace lockstep {
namespace {

using internal::GgufCopy;
using testing::HasSubstr;

TEST(DistributionTest, LogitsAndProbabilitiesMeanTheSame) {
  const std::vector<float> logits = {1000.0f, 1000.0f + std::log(3.0f)};
  const std::vector<float> probabilities = {0.25f, 0.75f};
  const auto of_logits = internal::LogProbabilities(logits, false);
  const auto of_probabilities = internal::LogProbabilities(probabilities, true);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(of_logits[i], of_probabilities[i], 1e-4);
    EXPECT_NEAR(of_probabilities[i], std::log(double{probabilities[i]}), 1e-12);
  }
  EXPECT_EQ(internal::ArgmaxOf(of_logits), 1);
}

TEST(DistributionTest, DistancesAreThoseOfTheirDefinitions) {
  const std::vector<double> p = {std::log(0.5), std::log(0.5)};
  const std::vector<double> q = {std::log(0.25), std::log(0.75)};
  EXPECT_NEAR(internal::KlDivergence(p, q), 0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75),
              1e-12);
  EXPECT_EQ(internal::KlDivergence(p, p), 0);
  const internal::LogDistance distance = internal::DistanceOf(p, q);
  EXPECT_NEAR(distance.max, std::log(2.0), 1e-12);
  EXPECT_NEAR(distance.sum, std::log(2.0) + std::log(1.5), 1e-12);
  EXPECT_EQ(distance.tokens, 2);
}

TEST(DistributionTest, OnlyWhatBothHoldUnlikelyIsLeftOut) {
  const std::vector<double> p = {0, -80, -20, NAN};
  const std::vector<double> q = {0, -INFINITY, -INFINITY, 0};
  const internal::LogDistance first =
      internal::DistanceOf(std::span(p).first(2), std::span(q).first(2));
  EXPECT_EQ(first.left_out, 1);
  EXPECT_EQ(first.max, 0);
  // One holds it likely enough to be compared; the other's probability has vanished.
  EXPECT_GT(internal::DistanceOf(std::span(p).first(3), std::span(q).first(3)).max, 50);
  EXPECT_TRUE(std::isinf(internal::DistanceOf(p, q).max)) << "no number is not close";
}

TEST(GgufCopyTest, ACopyIsTheSameModel) {
  for (const char* name : {"tiny-gqa-9x3-q8_0", "tiny-granite-6x3-q8_0", "tiny-llama3-4x2-bf16"}) {
    const auto file = MakeSyntheticModel(SyntheticPreset(name), 1);
    const auto copy = GgufFile::FromBytes(GgufCopy(*file).Image(), "copy");
    EXPECT_EQ(copy->metadata(), file->metadata());
    ASSERT_EQ(copy->tensors().size(), file->tensors().size());
    for (size_t i = 0; i < copy->tensors().size(); ++i) {
      EXPECT_EQ(copy->tensors()[i].name, file->tensors()[i].name);
      EXPECT_TRUE(std::ranges::equal(copy->tensors()[i].data, file->tensors()[i].data));
    }
  }
}

TEST(GgufCopyTest, TheTwinHasTheValuesOfTheModelInF32) {
  const auto file = MakeSyntheticModel(SyntheticPreset("tiny-gqa-8x1-q2_k+q3_k"), 1);
  const auto model = Model::Load(file);
  for (const bool tied : {false, true}) {
    const auto twin_file = GgufFile::FromBytes(internal::F32Twin(*file, tied), "twin");
    const auto twin = Model::Load(twin_file);
    EXPECT_EQ(twin->config().tied_head, tied);
    for (const GgufTensor& tensor : twin_file->tensors()) {
      const bool stays = !tied && tensor.name == "token_embd.weight";
      EXPECT_EQ(tensor.type == GgmlType::kF32, !stays) << tensor.name;
    }
    std::vector<float> row(256), twin_row(256);
    model->Embed(7, row);
    twin->Embed(7, twin_row);
    EXPECT_EQ(row, twin_row);
    const GgufTensor* head = twin_file->FindTensor(tied ? "token_embd.weight" : "output.weight");
    ASSERT_NE(head, nullptr);
    EXPECT_EQ(std::memcmp(head->data.data() + 7 * 256 * sizeof(float), row.data(),
                          row.size() * sizeof(float)),
              0);
  }
}

TEST(PeerPlantTest, EachChangesSomePresetAndIsFoundByName) {
  for (const PeerPlant& plant : PeerPlants()) {
    EXPECT_EQ(ParsePeerPlant(plant.name).kind, plant.kind);
    if (plant.kind == PeerPlantKind::kPosition) continue;  // of the tokens, not of the model
    const bool changes = std::ranges::any_of(SyntheticPresets(), [&](const SyntheticSpec& spec) {
      if (spec.name == "smollm-135m") return false;
      const auto file = MakeSyntheticModel(spec, 1);
      const auto planted = PlantedModel(file, plant.kind);
      return planted != nullptr && (planted->metadata() != file->metadata() ||
                                    !std::ranges::equal(planted->bytes(), file->bytes()));
    });
    EXPECT_TRUE(changes) << plant.name;
  }
  EXPECT_THROW(ParsePeerPlant("absent"), Error);
  const auto plain = MakeSyntheticModel(SyntheticPreset("tiny-mha-4x4-f32"), 1);
  EXPECT_EQ(PlantedModel(plain, PeerPlantKind::kNoBias), nullptr);
}

TEST(PeerBoundTest, EveryPresetHasOneOfItsTypes) {
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.name == "smollm-135m") continue;
    const PeerBound& bound = PeerBoundOf(*MakeSyntheticModel(spec, 1));
    EXPECT_TRUE(bound.type == spec.weight_type || bound.type == spec.wide_type) << spec.name;
  }
  std::set<GgmlType> types;
  for (const PeerBound& bound : PeerBounds()) {
    EXPECT_TRUE(types.insert(bound.type).second);
    EXPECT_EQ(bound.rounding > 0, IsQuantized(bound.type)) << "only blocks round";
    EXPECT_FALSE(bound.why.empty());
  }
}

TEST(AwkwardTextsTest, AreDistinctAndValidUtf8) {
  std::set<std::string_view> texts;
  for (const std::string_view text : AwkwardTexts()) {
    EXPECT_TRUE(texts.insert(text).second) << text;
    Utf8Stream stream;
    EXPECT_EQ(stream.Push(text) + stream.Flush(), text);
  }
  EXPECT_GT(texts.size(), 40u);
}

TEST(PeerCheckReportTest, VerdictsSayWhatDiffersAndWhatIsKnown) {
  PeerCheckRow held{.model = "one", .architecture = "llama", .weights = "q8_0"};
  held.verdict = PeerCheckRow::Verdict::kHolds;
  held.twin = {.positions = 2, .tokens = 640, .log_max = 2e-5, .likeliest_equal = 2};
  held.texts = held.texts_equal = 3;
  PeerCheckRow known{.model = "two", .architecture = "llama", .weights = "f16"};
  known.verdict = PeerCheckRow::Verdict::kKnown;
  PeerCheckResult result{.engine = "fake", .seed = 1, .rows = {known}};
  EXPECT_THAT(PeerCheckVerdict(result), HasSubstr("INCONCLUSIVE"));
  EXPECT_FALSE(result.compared());
  result.rows.push_back(held);
  EXPECT_EQ(
      PeerCheckVerdict(result),
      "HOLDS: 1 of 2 models agree with the peer, 1 differ as is known, 640 probabilities compared");
  PeerCheckRow differs = held;
  differs.model = "three";
  differs.verdict = PeerCheckRow::Verdict::kDiffers;
  differs.detail = "token ids differ";
  result.rows.push_back(differs);
  EXPECT_TRUE(result.differs());
  EXPECT_THAT(PeerCheckVerdict(result), HasSubstr("DIFFERS: three: "));
  EXPECT_THAT(PeerCheckMarkdown(result, "command"), HasSubstr("- three: token ids differ"));
  EXPECT_THAT(PeerCheckJson(result, "command"), HasSubstr("\"log_max\": 2e-05"));
}

}  // namespace
}  // namespace lockstep
