#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "caches/error.h"
#include "engine/math.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int32_t> TokensOf(const Distribution& distribution) {
  std::vector<int32_t> tokens;
  for (const auto& entry : distribution.entries) tokens.push_back(entry.token);
  return tokens;
}

Distribution Of(SamplerOptions options, const std::vector<float>& logits,
                const std::vector<int32_t>& text = {}) {
  return Sampler(std::move(options)).Of(logits, text);
}

TEST(SamplerTest, WeightsAreTheSoftmaxOfLogitsOverTemperature) {
  const std::vector<float> logits = {1.0f, 3.0f, -2.0f, 3.0f, 2.5f};
  const Distribution distribution = Of({.temperature = 0.5f}, logits);
  EXPECT_THAT(TokensOf(distribution), ElementsAre(1, 3, 4, 0, 2)) << "ties by token";
  uint64_t total = 0;
  for (const auto& [token, weight] : distribution.entries) {
    const double exact = std::exp((logits[static_cast<size_t>(token)] - 3.0) / 0.5);
    EXPECT_NEAR(static_cast<double>(weight) / static_cast<double>(kWeightOne), exact, 1e-7);
    total += weight;
  }
  EXPECT_EQ(distribution.total, total);
  EXPECT_EQ(distribution.WeightOf(1), kWeightOne);
  EXPECT_EQ(distribution.WeightOf(3), kWeightOne);
  EXPECT_EQ(distribution.WeightOf(7), 0u);
}

TEST(SamplerTest, TemperatureZeroIsTheLikeliestAlone) {
  EXPECT_THAT(TokensOf(Of({}, {1, 4, 4, -1})), ElementsAre(1));
  EXPECT_THAT(TokensOf(Of({.logit_bias = {{2, 0.5f}}}, {1, 4, 4, -1})), ElementsAre(2));
}

TEST(SamplerTest, CutsKeepTheLikeliest) {
  // Weights 1, 1/2, 1/4, 1/8 of the likeliest: shares 8, 4, 2, 1 of 15.
  const float half = std::log(2.0f);
  const std::vector<float> logits = {-3 * half, 0, -2 * half, -half};
  EXPECT_THAT(TokensOf(Of({.temperature = 1}, logits)), ElementsAre(1, 3, 2, 0));
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .top_k = 2}, logits)), ElementsAre(1, 3));
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .top_k = 9}, logits)), ElementsAre(1, 3, 2, 0));
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .top_p = 0.5f}, logits)), ElementsAre(1));
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .top_p = 0.54f}, logits)), ElementsAre(1, 3));
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .top_p = 0.9f}, logits)), ElementsAre(1, 3, 2));
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .top_p = 1e-9f}, logits)), ElementsAre(1));
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .min_p = 0.2f}, logits)), ElementsAre(1, 3, 2));
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .min_p = 1}, logits)), ElementsAre(1));
  // A share of what top_k left: 12 of 12.
  EXPECT_THAT(TokensOf(Of({.temperature = 1, .top_k = 2, .top_p = 0.6f}, logits)), ElementsAre(1));
}

TEST(SamplerTest, PenaltiesActOnTheWindowOnce) {
  const SamplerOptions repeat = {
      .penalty_tokens = 3, .repetition_penalty = 2, .temperature = 1, .top_k = 1};
  // Token 0 is halved, token 1 is outside the window.
  EXPECT_THAT(TokensOf(Of(repeat, {4, 3, 1}, {1, 0, 2, 0})), ElementsAre(1));
  EXPECT_THAT(TokensOf(Of(repeat, {4, 3, 1}, {0, 1, 2, 2})), ElementsAre(0)) << "0 is outside";
  // Below zero it is multiplied.
  EXPECT_THAT(TokensOf(Of(repeat, {-1, -1.5f, -9}, {0})), ElementsAre(1));
  const SamplerOptions presence = {.presence_penalty = 1, .temperature = 1, .top_k = 1};
  EXPECT_THAT(TokensOf(Of(presence, {2, 1.5f, 0}, {0, 0, 0})), ElementsAre(1));
  EXPECT_THAT(TokensOf(Of(presence, {2, 0.5f, 0}, {0, 0, 0})), ElementsAre(0)) << "once";
  const SamplerOptions frequency = {.frequency_penalty = 0.5f, .temperature = 1, .top_k = 1};
  EXPECT_THAT(TokensOf(Of(frequency, {2, 0.75f, 0}, {0, 0, 0})), ElementsAre(1)) << "thrice";
  EXPECT_THAT(TokensOf(Of(frequency, {2, 0.75f, 0}, {0, 0})), ElementsAre(0));
  SamplerOptions all = frequency;
  all.penalty_tokens = 2;
  EXPECT_THAT(TokensOf(Of(all, {2, 0.75f, 0}, {0, 0, 0})), ElementsAre(0)) << "two of them count";
  all.penalty_tokens = -1;
  EXPECT_THAT(TokensOf(Of(all, {2, 0.75f, 0}, {0, 0, 0})), ElementsAre(1));
  // Nothing of one call is left in the next.
  Sampler sampler(frequency);
  const std::vector<int32_t> text = {0, 0, 0};
  sampler.Of(std::vector<float>{2, 0.75f, 0}, text);
  EXPECT_THAT(TokensOf(sampler.Of(std::vector<float>{2, 0.75f, 0}, text)), ElementsAre(1));
  EXPECT_THAT(TokensOf(sampler.Of(std::vector<float>{2, 0.75f, 0}, {})), ElementsAre(0));
}

TEST(SamplerTest, ABiasOfMinusInfinityForbids) {
  const SamplerOptions options = {.logit_bias = {{1, -kInfinity}}, .temperature = 2};
  EXPECT_THAT(TokensOf(Of(options, {0, 9, 0})), ElementsAre(0, 2));
}

TEST(SamplerTest, ThereIsAlwaysAToken) {
  EXPECT_THAT(TokensOf(Of({.temperature = 1}, {kNan, 1, kNan})), ElementsAre(1));
  EXPECT_THAT(TokensOf(Of({.temperature = 1}, {kNan, kNan})), ElementsAre(0));
  EXPECT_THAT(TokensOf(Of({.temperature = 1}, {1, kInfinity, 2})), ElementsAre(1));
  EXPECT_THAT(
      TokensOf(Of({.logit_bias = {{0, -kInfinity}, {1, -kInfinity}}, .temperature = 1}, {1, 2})),
      ElementsAre(1));
  EXPECT_THAT(TokensOf(Of({.temperature = 1e-45f}, {1, 2, 2})), ElementsAre(1, 2));
}

TEST(SamplerTest, OptionsOutsideTheirRangeAreRefusedByName) {
  const auto refusal = [](SamplerOptions options) -> std::string {
    try {
      CheckSamplerOptions(options, 10);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({.logit_bias = {{9, -kInfinity}}, .temperature = 2, .min_p = 1}), "accepted");
  EXPECT_THAT(refusal({.temperature = -1}), HasSubstr("--temperature: -1 is not of at least 0"));
  EXPECT_THAT(refusal({.temperature = kNan}), HasSubstr("--temperature"));
  EXPECT_THAT(refusal({.top_k = -1}), HasSubstr("--top-k"));
  EXPECT_THAT(refusal({.top_p = 0}), HasSubstr("--top-p"));
  EXPECT_THAT(refusal({.top_p = 1.5f}), HasSubstr("--top-p"));
  EXPECT_THAT(refusal({.min_p = -0.1f}), HasSubstr("--min-p"));
  EXPECT_THAT(refusal({.repetition_penalty = 0}), HasSubstr("--repetition-penalty"));
  EXPECT_THAT(refusal({.presence_penalty = kInfinity}), HasSubstr("--presence-penalty"));
  EXPECT_THAT(refusal({.penalty_tokens = -2}), HasSubstr("--penalty-tokens"));
  EXPECT_THAT(refusal({.logit_bias = {{10, 0}}}), HasSubstr("token 10 is outside [0, 10)"));
  EXPECT_THAT(refusal({.logit_bias = {{1, kInfinity}}}), HasSubstr("--logit-bias"));
}

TEST(DrawTest, UniformBelowReachesEveryNumberAlike) {
  Random random(5);
  for (const uint64_t bound : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{7}, uint64_t{8}}) {
    std::map<uint64_t, int> seen;
    for (int i = 0; i < 4000; ++i) ++seen[static_cast<uint64_t>(UniformBelow(bound, &random))];
    ASSERT_EQ(seen.size(), bound);
    for (const auto& [value, count] : seen) {
      EXPECT_NEAR(count, 4000.0 / static_cast<double>(bound), 200) << value << " of " << bound;
    }
  }
  // Past 64 bits, both halves are drawn.
  const Uint128 large = (Uint128{3} << 64) + 5;
  std::map<uint64_t, int> highs;
  for (int i = 0; i < 4000; ++i) {
    const Uint128 value = UniformBelow(large, &random);
    ASSERT_LT(value, large);
    ++highs[static_cast<uint64_t>(value >> 64)];
  }
  for (uint64_t high = 0; high < 3; ++high) EXPECT_NEAR(highs[high], 1333, 150);
}

TEST(DrawTest, TokensComeAsOftenAsTheyWeigh) {
  const Distribution distribution = {{{7, 5}, {2, 2}, {9, 1}}, 8};
  Random random(1);
  std::map<int32_t, int> seen;
  for (int i = 0; i < 8000; ++i) ++seen[Draw(distribution, &random)];
  EXPECT_NEAR(seen[7], 5000, 150);
  EXPECT_NEAR(seen[2], 2000, 150);
  EXPECT_NEAR(seen[9], 1000, 120);
  EXPECT_EQ(seen.size(), 3u);
}

// The same on every machine: written down once.
TEST(DrawTest, ASeedIsASequence) {
  Sampler sampler({.temperature = 0.8f, .top_k = 40, .top_p = 0.95f});
  std::vector<float> logits(100);
  Random made(3), random(11);
  std::vector<int32_t> text;
  for (int i = 0; i < 12; ++i) {
    for (float& logit : logits) {
      logit = static_cast<float>(made.Between(-1000, 1000)) / 256.0f;
    }
    text.push_back(Draw(sampler.Of(logits, text), &random));
  }
  EXPECT_THAT(text, ElementsAre(95, 8, 35, 97, 74, 4, 78, 39, 46, 67, 50, 23));
}

}  // namespace
}  // namespace lockstep
