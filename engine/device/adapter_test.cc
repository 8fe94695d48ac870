// Steps with adapters on a device: the host's bits, whichever were applied before.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/device/forward_test_util.h"
#include "engine/synthetic.h"

namespace lockstep::testing {
namespace {

std::vector<AppliedAdapter> TwoAdapters(const ModelConfig& config) {
  return {{MakeSyntheticAdapter(config, {.rank = 3}, 1), 1.0f},
          {MakeSyntheticAdapter(config, {.rank = 17, .type = GgmlType::kF16}, 2), -0.375f}};
}

void Apply(Pair* pair, const std::vector<AppliedAdapter>& adapters) {
  pair->device.engine.SetAdapters(adapters);
  pair->host.engine.SetAdapters(adapters);
}

class DeviceAdapterTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Small, DeviceAdapterTest, ::testing::ValuesIn(SmallPresets()),
                         [](const auto& param) { return TestName(param.param); });

TEST_P(DeviceAdapterTest, GivesTheBitsOfTheHost) {
  for (const char* cache : {"cuda", "hybrid/1"}) {
    SCOPED_TRACE(cache);
    Pair pair(GetParam(), cache, MakeHostExecutor({.seed = 3}));
    Apply(&pair, TwoAdapters(pair.host.engine.model().config()));
    pair.ExpectEqualGeneration();
    EXPECT_GT(pair.device.engine.device_use().layer_steps, 0);
  }
}

TEST(DeviceAdapterStepTest, KeepsTheModelOfADevice) {
  Pair pair("tiny-granite-6x3-q8_0", "cuda", MakeHostExecutor({.seed = 5, .checked = true}));
  Apply(&pair, TwoAdapters(pair.host.engine.model().config()));
  pair.ExpectEqualStep(4, 1);
  pair.ExpectEqualStep(1, 2);
  pair.ExpectEqualRows();
}

// Between decode steps: both, none, one, another scale; then scale 0, which is none, and the others
// again. Each has a graph of its own, which is found again.
TEST(DeviceAdapterStepTest, OtherAdaptersAreOtherGraphs) {
  Pair pair("tiny-headdim128-2x1-q8_0", "cuda", NewDefaultDevice());
  const auto both = TwoAdapters(pair.host.engine.model().config());
  const std::vector<std::vector<AppliedAdapter>> sets = {
      both, {}, {both[0]}, {{both[0].adapter, 0.5f}}, {{both[0].adapter, 0.0f}}, {both[0]}, {}};
  pair.ExpectEqualStep(3, 1);
  for (size_t i = 0; i < sets.size(); ++i) {
    SCOPED_TRACE(i);
    Apply(&pair, sets[i]);
    pair.ExpectEqualStep(1, static_cast<int32_t>(i));
  }
  pair.ExpectEqualRows();
  EXPECT_EQ(pair.device.engine.device_use().graph_steps, 7);
  EXPECT_EQ(pair.device.engine.device_use().graphs_recorded, 4);
}

// An adapter that is gone gives back its memory, and one that comes to lie where it lay is another.
TEST(DeviceAdapterStepTest, AnAdapterThatIsGoneIsForgotten) {
  Pair pair("tiny-mqa-4x1-f16", "cuda", NewDefaultDevice());
  const ModelConfig& config = pair.host.engine.model().config();
  pair.ExpectEqualStep(3, 1);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const auto adapter = MakeSyntheticAdapter(config, {.rank = 3}, seed);
    Apply(&pair, {{adapter, 1.0f}});
    pair.ExpectEqualStep(1, static_cast<int32_t>(seed));
    Apply(&pair, {});
    const std::weak_ptr<const LoraAdapter> held = adapter;
    EXPECT_EQ(held.use_count(), 1) << "the device keeps it alive";
  }
  pair.ExpectEqualRows();
}

// Each sequence of a batch has its own.
TEST(DeviceAdapterStepTest, SequencesOfABatchHaveTheirOwn) {
  const auto device = MakeHostExecutor({.seed = 7});
  const auto model = PresetModel("tiny-gemma2-5x1-q8_0");
  const auto both = TwoAdapters(model->config());
  const std::vector<std::vector<AppliedAdapter>> sets = {both, {}, {both[1]}};
  Transformer engine(model, {.max_step_tokens = 7, .device = device});
  Transformer host(model, {});
  const std::vector<int32_t> positions = Iota(0, 6);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::unique_ptr<KvCache>> caches, twins;
  std::vector<BatchSequence> batch;
  for (size_t i = 0; i < sets.size(); ++i) {
    tokens.push_back(Iota(static_cast<int32_t>(20 * i), 6));
    caches.push_back(NewCache(*model, "cuda", device));
    twins.push_back(NewCache(*model, HostTwin("cuda"), nullptr));
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    batch.push_back({.tokens = tokens[i],
                     .positions = positions,
                     .cache = caches[i].get(),
                     .adapters = sets[i]});
  }
  const auto together = Bits(engine.ForwardBatch(batch));
  EXPECT_GT(engine.device_use().layer_steps, 0);
  const auto vocab = static_cast<std::ptrdiff_t>(model->config().vocab_size);
  for (size_t i = 0; i < sets.size(); ++i) {
    host.SetAdapters(sets[i]);
    const auto alone = Bits(host.Forward(tokens[i], positions, *twins[i]));
    const auto begin = together.begin() + static_cast<std::ptrdiff_t>(i) * vocab;
    EXPECT_EQ(std::vector<uint32_t>(begin, begin + vocab), alone) << i;
    EXPECT_EQ(DigestOfCache(*caches[i]), DigestOfCache(*twins[i])) << i;
  }
}

}  // namespace
}  // namespace lockstep::testing
