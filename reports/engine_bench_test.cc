#include "reports/engine_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "engine/kernels.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"
#include "reports/engine_report.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Model> TinyModel() {
  static const auto model =
      Model::Load(MakeSyntheticModel(SyntheticPreset("tiny-gqa-9x3-q8_0"), 1));
  return model;
}

EngineBenchOptions TinyOptions() {
  EngineBenchOptions options;
  options.isas.clear();
  for (const KernelTable* table : AvailableKernels()) options.isas.emplace_back(table->name);
  options.threads = {1, 2};
  options.prefills = {5};
  options.depths = {0, 9};
  options.caches = {"simple", "paged/4", "quantized/q8_0+q8_0/w2"};
  options.decode_tokens = 3;
  options.rounds = 3;
  options.seed = 7;
  options.limits = {.read_bytes = int64_t{1} << 20, .seconds = 1e-5, .attempts = 1};
  return options;
}

const EngineBenchResult& TinyResult() {
  static const EngineBenchResult result = RunEngineBench(TinyModel(), TinyOptions());
  return result;
}

TEST(EngineBenchTest, MeasuresEveryPointInEveryRound) {
  const EngineBenchResult& result = TinyResult();
  EXPECT_EQ(result.points.size(), AvailableKernels().size() * 2 * 3 * 3);
  EXPECT_EQ(result.rounds.size(), 3u);
  for (const PointResult& point : result.points) {
    ASSERT_EQ(point.samples.size(), 3u);
    for (const PointSample& sample : point.samples) {
      EXPECT_GT(sample.seconds, 0);
      EXPECT_GT(sample.limit_seconds, 0);
    }
  }
}

TEST(EngineBenchTest, LimitsAreThoseOfTheRoundTheThreadsAndTheInstructionSet) {
  const EngineBenchResult& result = TinyResult();
  std::vector<std::string_view> isas;
  for (const LimitSample& limit : result.rounds[0].samples) isas.push_back(limit.isa);
  for (const PointResult& point : result.points) {
    for (const PointSample& sample : point.samples) {
      int32_t found = 0;
      for (const LimitSample& limit : result.rounds[static_cast<size_t>(sample.round)].samples) {
        if (limit.threads != point.point.threads) continue;
        if (limit.isa != InstructionSetOf(point.point.isa, isas)) continue;
        EXPECT_EQ(sample.limit_seconds, SecondsAtBest(point.point.phase, point.work, limit));
        ++found;
      }
      EXPECT_EQ(found, 1) << point.point.isa;
    }
  }
}

TEST(EngineBenchTest, TheLeastTimeIsReadingForDecodeAndArithmeticForPrefill) {
  const Work work = {.bytes = 100, .dot_multiply_adds = 60, .fma_multiply_adds = 20};
  const LimitSample limits = {
      .threads = 1, .isa = "x", .read_bandwidth = 50, .dot_peak = 30, .fma_peak = 5};
  EXPECT_DOUBLE_EQ(SecondsAtBest(Phase::kDecode, work, limits), 2);
  EXPECT_DOUBLE_EQ(SecondsAtBest(Phase::kPrefill, work, limits), 6);
}

TEST(EngineBenchTest, BitsAreThoseOfThePlainForwardPass) {
  const EngineBenchResult& result = TinyResult();
  EXPECT_THAT(DigestMismatches(result.points), testing::IsEmpty());
  Random random(7);  // the prompt, as the header says: seeded, of the vocabulary
  std::vector<int32_t> tokens(12), positions(12);
  for (int32_t& token : tokens) token = random.Between(0, TinyModel()->config().vocab_size - 1);
  std::iota(positions.begin(), positions.end(), 0);
  Transformer engine(TinyModel(), {.kernels = &SelectKernels("scalar")});
  const auto cache =
      ParseCacheSpec("simple").make({.geometry = TinyModel()->config().geometry(12)});
  const auto first = [](const std::vector<int32_t>& all, size_t count) {
    return std::span(all).first(count);
  };
  const Digest prefill =
      DigestOfFloats(engine.Forward(first(tokens, 5), first(positions, 5), *cache));
  cache->Clear();
  engine.Forward(first(tokens, 9), first(positions, 9), *cache);
  DigestBuilder decode;
  int32_t token = tokens[9];
  for (int32_t position = 9; position < 12; ++position) {
    const auto logits = engine.Forward({&token, 1}, {&position, 1}, *cache);
    decode.AddFloats(logits);
    token = ArgMax(logits);
  }
  int compared = 0;
  for (const PointResult& point : result.points) {
    if (point.point.cache == "quantized/q8_0+q8_0/w2" || point.point.name() == "decode 0") continue;
    const bool is_prefill = point.point.name() == "prefill 5";
    for (const PointSample& sample : point.samples) {
      EXPECT_EQ(sample.digest, is_prefill ? prefill : decode.Finish()) << point.point.isa;
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

TEST(EngineBenchTest, ChangedBitsAreNamed) {
  EngineBenchResult result = TinyResult();
  const std::string before = DigestOfPoints(result.points).Hex();
  PointResult& last = result.points.back();  // decode 9 on the last table
  last.samples[1].digest.low ^= 1;
  const auto lines = DigestMismatches(result.points);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("decode 9"));
  EXPECT_THAT(lines[0], HasSubstr("round 1"));
  EXPECT_THAT(EngineMarkdown(result, "x", "y"), HasSubstr("NOT EQUAL"));
  EXPECT_EQ(DigestOfPoints(result.points).Hex(), before);
  for (PointResult& point : result.points) point.samples[0].digest.low ^= 1;
  EXPECT_NE(DigestOfPoints(result.points).Hex(), before);
}

TEST(EngineBenchTest, ReportsHoldWhatWasMeasured) {
  EngineBenchResult result = TinyResult();
  EXPECT_THAT(DigestMismatches(TinyResult().points), testing::IsEmpty());
  PointResult& point = result.points.front();  // prefill 5
  for (PointSample& sample : point.samples) {
    sample.seconds = 0.5;
    sample.limit_seconds = 0.25;
  }
  const Table table = EngineTable(result);
  EXPECT_EQ(table.rows.size(), result.points.size());
  EXPECT_EQ(table.rows[0][4], "10.0 [10.0, 10.0]");  // 5 tokens in half a second
  EXPECT_EQ(table.rows[0][7], "20.0");
  EXPECT_EQ(table.rows[0][8], "50.0 % [50.0, 50.0]");
  EXPECT_EQ(LimitTable(result).rows.size(), AvailableKernels().size() * 2);
  EXPECT_THAT(EngineMarkdown(result, "the command", "the model"), HasSubstr("| prefill 5 |"));
  EXPECT_THAT(EngineJson(result, "the command", "the model"), HasSubstr("\"limit_seconds\": 0.25"));
}

TEST(EngineBenchTest, SlowAndFastBarriersAreToldApart) {
  EngineBenchResult result = TinyResult();
  for (RoundLimits& round : result.rounds) round.barrier_seconds = 30e-9;
  EXPECT_TRUE(RegimeTable(result).rows.empty());
  result.rounds[2].barrier_seconds = 165e-9;
  const Table table = RegimeTable(result);
  EXPECT_EQ(table.rows.size(), result.points.size());  // half of them, in two regimes each
  EXPECT_EQ(table.rows[0][5], "2");
  EXPECT_EQ(table.rows[1][5], "1");
}

TEST(EngineBenchTest, RefusesWhatCannotBeMeasured) {
  const auto refused = [](auto change) {
    EngineBenchOptions options = TinyOptions();
    change(&options);
    EXPECT_THROW(RunEngineBench(TinyModel(), options), Error);
  };
  refused([](auto* o) { o->isas = {"mmx"}; });
  refused([](auto* o) { o->caches = {"cuda/9"}; });
  refused([](auto* o) { o->depths = {255}; });  // and three tokens more: the context is 256
  refused([](auto* o) { o->prefills = {257}; });
}

}  // namespace
}  // namespace lockstep
