// Steps with adapters: the numbers, and the same bits on every way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "caches/registry.h"
#include "engine/adapter.h"
#include "engine/model/test_support.h"
#include "engine/synthetic.h"
#include "engine/transformer.h"

namespace lockstep::testing {
namespace {

constexpr int32_t kMaxLength = 40;

std::vector<AppliedAdapter> Adapters(const ModelConfig& config) {
  return {{MakeSyntheticAdapter(config, {.rank = 3}, 1), 1.0f},
          {MakeSyntheticAdapter(config, {.rank = 17, .type = GgmlType::kF16}, 2), -0.375f}};
}

// What steps leave behind.
struct Outcome {
  std::vector<uint32_t> logits;
  Digest cache;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};
void PrintTo(const Outcome& outcome, std::ostream* out) { *out << outcome.cache.Hex(); }

Outcome Step(Transformer& transformer, ProbeCache& cache, std::span<const int32_t> tokens) {
  const auto positions = Iota(cache.current_length(), static_cast<int32_t>(tokens.size()));
  const auto logits = Bits(transformer.Forward(tokens, positions, cache));
  return {logits, DigestOfCache(cache.inner())};
}

class AdapterForwardTest : public ::testing::TestWithParam<std::string> {
 protected:
  const std::shared_ptr<const Model> model_ = PresetModel(GetParam());
  const ModelConfig& config_ = model_->config();
  const std::vector<AppliedAdapter> adapters_ = Adapters(config_);
  const std::vector<int32_t> tokens_ = SomeTokens(config_, 13);
};

INSTANTIATE_TEST_SUITE_P(Small, AdapterForwardTest, ::testing::ValuesIn(SmallPresets()),
                         [](const auto& param) { return TestName(param.param); });

// The same steps on both write paths, in any cuts, on any kernels and number of threads.
TEST_P(AdapterForwardTest, EveryWayGivesTheSameBits) {
  std::optional<Outcome> prefilled, decoded;
  const auto run = [&](const TransformerOptions& options, bool legacy, int32_t cut) {
    Transformer transformer(model_, options);
    transformer.SetAdapters(adapters_);
    const auto cache = NewProbe(*model_, kMaxLength);
    cache->refuse_slots = legacy;
    const auto first = std::span(tokens_).first(static_cast<size_t>(cut));
    Outcome outcome = Step(transformer, *cache, first);
    if (cut < 12)
      outcome =
          Step(transformer, *cache, std::span(tokens_).subspan(first.size(), 12 - first.size()));
    if (!prefilled) prefilled = outcome;
    EXPECT_EQ(outcome, *prefilled) << transformer.kernels().name << " cut " << cut;
    outcome = Step(transformer, *cache, std::span(tokens_).last(1));
    if (!decoded) decoded = outcome;
    EXPECT_EQ(outcome, *decoded) << transformer.kernels().name << " cut " << cut;
  };
  for (const KernelTable* kernels : AvailableKernels()) run({.kernels = kernels}, false, 12);
  run({}, true, 12);
  run({.max_step_tokens = 5}, false, 12);
  run({.threads = 3}, false, 7);
  run({.threads = 2}, true, 1);
  Transformer plain(model_);
  const auto without = NewProbe(*model_, kMaxLength);
  EXPECT_NE(Step(plain, *without, std::span(tokens_).first(12)), *prefilled);
}

// Each sequence of a batch has its own: what it leaves is what it leaves alone [F3].
TEST_P(AdapterForwardTest, SequencesOfABatchHaveTheirOwn) {
  const std::vector<std::vector<AppliedAdapter>> sets = {
      adapters_, {}, {adapters_[1]}, {adapters_[0], adapters_[0]}};
  Transformer together(model_);
  std::vector<std::unique_ptr<ProbeCache>> caches;
  std::vector<BatchSequence> batch;
  for (size_t i = 0; i < sets.size(); ++i) {
    caches.push_back(NewProbe(*model_, kMaxLength));
    const auto count = static_cast<int32_t>(3 * i + 1);
    static const std::vector<int32_t> positions = Iota(0, kMaxLength);
    batch.push_back({std::span(tokens_).first(static_cast<size_t>(count)),
                     std::span(positions).first(static_cast<size_t>(count)), caches.back().get(),
                     nullptr, sets[i]});
  }
  const auto logits = Bits(together.ForwardBatch(batch));
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  for (size_t i = 0; i < sets.size(); ++i) {
    Transformer alone(model_);
    alone.SetAdapters(sets[i]);
    const auto cache = NewProbe(*model_, kMaxLength);
    const Outcome outcome = Step(alone, *cache, batch[i].tokens);
    EXPECT_EQ(outcome.cache, DigestOfCache(caches[i]->inner())) << i;
    EXPECT_EQ(outcome.logits, std::vector(logits.begin() + static_cast<ptrdiff_t>(i * vocab),
                                          logits.begin() + static_cast<ptrdiff_t>((i + 1) * vocab)))
        << i;
  }
}

// Rows stay what the adapters of their own step made of them.
TEST_P(AdapterForwardTest, SwitchingBetweenStepsIsThatOfASingleToken) {
  Transformer steps(model_), single(model_);
  const auto a = NewProbe(*model_, kMaxLength), b = NewProbe(*model_, kMaxLength);
  const std::vector<std::vector<AppliedAdapter>> sets = {{}, adapters_, {adapters_[0]}, {}};
  size_t done = 0;
  for (const auto& set : sets) {
    steps.SetAdapters(set);
    single.SetAdapters(set);
    const auto tokens = std::span(tokens_).subspan(done, 3);
    const Outcome expected = Step(steps, *a, tokens);
    std::optional<Outcome> last;
    for (const int32_t& token : tokens) last = Step(single, *b, {&token, 1});
    EXPECT_EQ(*last, expected) << done;
    done += 3;
  }
  Transformer plain(model_);
  const auto c = NewProbe(*model_, kMaxLength);
  EXPECT_NE(Step(plain, *c, std::span(tokens_).first(12)).cache, DigestOfCache(a->inner()));
}

TEST_P(AdapterForwardTest, AScaleOfZeroIsNoAdapter) {
  Transformer transformer(model_), plain(model_);
  std::vector<AppliedAdapter> off = adapters_;
  for (AppliedAdapter& applied : off) applied.scale = 0;
  transformer.SetAdapters(off);
  EXPECT_EQ(Bits(transformer.ForwardUncached(tokens_)), Bits(plain.ForwardUncached(tokens_)));
  transformer.SetAdapters(adapters_);
  EXPECT_NE(Bits(transformer.ForwardUncached(tokens_)), Bits(plain.ForwardUncached(tokens_)));
  transformer.SetAdapters({});
  EXPECT_EQ(Bits(transformer.ForwardUncached(tokens_)), Bits(plain.ForwardUncached(tokens_)));
}

// [F2]
TEST(AdapterCheckTest, WhatDoesNotFitIsRefusedBeforeAnyWrite) {
  const auto model = PresetModel("tiny-mha-4x4-f32");
  const auto other = PresetModel("tiny-gqa-9x3-q8_0");
  const auto good = Adapters(model->config());
  const std::vector<std::vector<AppliedAdapter>> bad = {
      {good[0], {nullptr, 1.0f}},
      {{good[0].adapter, std::numeric_limits<float>::infinity()}},
      {{good[0].adapter, std::numeric_limits<float>::quiet_NaN()}},
      Adapters(other->config())};
  Transformer transformer(model);
  transformer.SetAdapters({good[1]});
  const auto tokens = SomeTokens(model->config(), 4);
  const auto before = Bits(transformer.ForwardUncached(tokens));
  const auto one = NewProbe(*model, 8), two = NewProbe(*model, 8);
  for (const auto& set : bad) {
    EXPECT_THROW(transformer.SetAdapters(set), std::invalid_argument);
    const std::vector<int32_t> positions = Iota(0, 4);
    const BatchSequence batch[] = {{tokens, positions, one.get(), nullptr, good},
                                   {tokens, positions, two.get(), nullptr, set}};
    EXPECT_THROW(transformer.ForwardBatch(batch), std::invalid_argument);
  }
  EXPECT_EQ(one->writes() + two->writes(), 0);
  EXPECT_EQ(Bits(transformer.ForwardUncached(tokens)), before) << "the last good ones stay";
}

// Steps with adapters and without take turns on a device, and no bit changes
// (engine/device/adapter_test.cc has the rest).
TEST(AdapterDeviceTest, StepsWithAdaptersRunOnTheDevice) {
  const auto model = PresetModel("tiny-bias-qknorm-6x2-q8_0");
  const auto tokens = SomeTokens(model->config(), 6);
  const CacheSpec spec = ParseCacheSpec("cuda");
  const std::shared_ptr<Device> on = NewDefaultDevice();
  const auto cache_of = [&] {
    return spec.make({.geometry = model->config().geometry(16), .sequences = 1, .device = on});
  };
  Transformer host(model), device(model, {.device = on});
  const auto a = cache_of(), b = cache_of();
  int32_t position = 0;
  for (const auto& set : {Adapters(model->config()), {}, Adapters(model->config())}) {
    host.SetAdapters(set);
    device.SetAdapters(set);
    const int64_t before = device.device_use().layer_steps;
    const int32_t positions[] = {position, position + 1};
    const auto some = std::span(tokens).subspan(static_cast<size_t>(position), 2);
    EXPECT_EQ(Bits(device.Forward(some, positions, *b)), Bits(host.Forward(some, positions, *a)));
    EXPECT_GT(device.device_use().layer_steps, before);
    EXPECT_EQ(DigestOfCache(*a), DigestOfCache(*b));
    position += 2;
  }
}

}  // namespace
}  // namespace lockstep::testing
