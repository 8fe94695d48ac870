// The real test model against another engine's recorded run of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "caches/simple_kv_cache.h"
#include "engine/generate.h"
#include "engine/model/test_support.h"
#include "engine/test_models.h"
#include "engine/tokenizer.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr int32_t kContext = 512;

#define LOCKSTEP_REFERENCE_OR_SKIP(run)                                                     \
  const std::optional<ReferenceRun> run##_found = LoadReferenceRun();                       \
  if (!run##_found) GTEST_SKIP() << "no ref/stories260K-f32.libllama.* in LOCKSTEP_MODELS"; \
  const ReferenceRun& run = *run##_found;                                                   \
  ASSERT_EQ(run.generated.size(), 200u);                                                    \
  ASSERT_EQ(run.logits.size(), 200u * 512u)

class ReferenceTokensTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ReferenceTokensTest, GreedyGivesTheFirst64Tokens) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, GetParam());
  LOCKSTEP_REFERENCE_OR_SKIP(run);
  const std::shared_ptr<const Model> model = Model::Load(GgufFile::Open(path));
  const auto tokenizer = Tokenizer::Load(model->file());
  const std::vector<int32_t> prompt = tokenizer->EncodePrompt("Once upon a time");
  EXPECT_EQ(prompt, run.prompt);
  Transformer transformer(model);
  SimpleKvCache cache(model->config().geometry(kContext));
  const GenerateResult result = Generate(transformer, cache, prompt, {.max_new_tokens = 64});
  EXPECT_THAT(result.tokens,
              ::testing::ElementsAreArray(run.generated.begin(), run.generated.begin() + 64));
}

INSTANTIATE_TEST_SUITE_P(
    Files, ReferenceTokensTest,
    ::testing::Values("stories260K-f32.gguf", "stories260K-f16.gguf", "stories260K-q8_0.gguf",
                      "stories260K-f32-untied.gguf", "stories260K-q8_0-ffn192.gguf",
                      "quant/stories260K-pad256-f32.gguf", "quant/stories260K-pad256-f16.gguf",
                      "quant/stories260K-pad256-bf16.gguf", "quant/stories260K-pad256-q8_0.gguf"),
    [](const auto& param) { return TestName(param.param); });

// Teacher-forced: step s is fed the reference's token, whatever this engine would choose.
template <typename OnStep>
void TeacherForce(const std::shared_ptr<const Model>& model, const ReferenceRun& run,
                  const OnStep& on_step) {
  Transformer transformer(model);
  SimpleKvCache cache(model->config().geometry(kContext));
  auto next = static_cast<int32_t>(run.prompt.size());
  std::span<const float> logits = transformer.Forward(run.prompt, Iota(0, next), cache);
  for (size_t step = 0; step < run.generated.size(); ++step) {
    on_step(step, logits);
    const int32_t position = next++;
    logits = transformer.Forward({&run.generated[step], 1}, {&position, 1}, cache);
  }
}

double LargestLogitError(const std::string& path, const ReferenceRun& run) {
  double largest = 0;
  TeacherForce(Model::Load(GgufFile::Open(path)), run, [&](size_t step, auto logits) {
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(
          largest, std::fabs(double{logits[i]} - double{run.logits[step * logits.size() + i]}));
    }
  });
  return largest;
}

TEST(ReferenceLogitsTest, F32StaysWithinAThousandthOver200Steps) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "stories260K-f32.gguf");
  LOCKSTEP_REFERENCE_OR_SKIP(run);
  const double error = LargestLogitError(path, run);
  RecordProperty("largest_error", std::to_string(error));
  EXPECT_LT(error, 1e-3);
}

// The quantized files lose precision, but no more than another engine does with them.
TEST(ReferenceLogitsTest, QuantizedWeightsStayInTheirRange) {
  LOCKSTEP_REFERENCE_OR_SKIP(run);
  const std::vector<std::pair<std::string, double>> bounds = {
      {"stories260K-f16.gguf", 0.05},
      {"stories260K-q8_0.gguf", 1.0},
      {"stories260K-q4_0-ffn192.gguf", 12.0}};
  for (const auto& [file, bound] : bounds) {
    LOCKSTEP_TEST_MODEL_OR_SKIP(path, file);
    const double error = LargestLogitError(path, run);
    RecordProperty(TestName(file), std::to_string(error));
    EXPECT_LT(error, bound) << file;
    EXPECT_GT(error, 1e-4) << file << " is not quantized?";
  }
}

TEST(ReferenceLogitsTest, AnUntiedCopyOfTheHeadGivesTheSameBits) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(tied_path, "stories260K-f32.gguf");
  LOCKSTEP_TEST_MODEL_OR_SKIP(untied_path, "stories260K-f32-untied.gguf");
  LOCKSTEP_REFERENCE_OR_SKIP(run);
  const auto tied = Model::Load(GgufFile::Open(tied_path));
  const auto untied = Model::Load(GgufFile::Open(untied_path));
  EXPECT_TRUE(tied->config().tied_head);
  EXPECT_FALSE(untied->config().tied_head);
  std::vector<Digest> expected;
  TeacherForce(tied, run, [&](size_t, auto logits) { expected.push_back(DigestOfFloats(logits)); });
  TeacherForce(untied, run, [&](size_t step, auto logits) {
    ASSERT_EQ(DigestOfFloats(logits), expected[step]) << "step " << step;
  });
}

// A real file of another converter: no rope.freq_base, no general.alignment, F16, 32000 tokens.
TEST(ReferenceLogitsTest, AFileWithDefaultsLoads) {
  LOCKSTEP_TEST_MODEL_OR_SKIP(path, "ollama_llama-2-tiny-random.gguf");
  const auto model = Model::Load(GgufFile::Open(path));
  EXPECT_EQ(model->config().rope.theta, 10000.0);
  EXPECT_EQ(model->config().head_dim, 4);
  EXPECT_EQ(model->config().vocab_size, 32000);
  Transformer transformer(model);
  const auto logits = transformer.ForwardUncached(SomeTokens(model->config(), 9));
  EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
}

}  // namespace
}  // namespace lockstep::testing
