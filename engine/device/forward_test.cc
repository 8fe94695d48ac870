// The forward pass on a device gives the bits of the forward pass on the host: logits, rows,
// traces.
#include "engine/device/forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "caches/error.h"
#include "engine/device/forward_test_util.h"
#include "engine/synthetic.h"

namespace lockstep::testing {
namespace {

using ::testing::Combine;
using ::testing::ValuesIn;

// ---- Every preset, every cache ----------------------------------------------------------------

class DeviceForwardTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(DeviceForwardTest, GivesTheBitsOfTheHost) {
  const auto& [preset, cache] = GetParam();
  const auto model = PresetModel(preset);
  if (!Takes(*model, cache)) return;  // a cache of blocks of 32: InstantiatedCaches counts them
  Pair pair(preset, cache, NewDefaultDevice());
  pair.ExpectEqualGeneration();
  EXPECT_GT(pair.device.engine.device_use().layer_steps, 0);
}

std::vector<std::string> Caches() {
  return {"cuda", "cuda-quantized/q8_0+q8_0/w4", "cuda-quantized/q8_0+q4_0/w0", "hybrid/1",
          "cuda-quantized/bf16+bf16/w4"};
}

INSTANTIATE_TEST_SUITE_P(Presets, DeviceForwardTest,
                         Combine(ValuesIn(SmallPresets()), ValuesIn(Caches())), [](const auto& i) {
                           return TestName(std::get<0>(i.param) + "_" + std::get<1>(i.param));
                         });

TEST(DeviceForwardTestItself, EachCacheIsTakenByModelsOfSeveralWeightTypes) {
  for (const std::string& cache : Caches()) {
    int32_t taken = 0;
    for (const std::string& preset : SmallPresets()) taken += Takes(*PresetModel(preset), cache);
    EXPECT_GE(taken, 4) << cache;
  }
}

// ---- Orders, checks, parts --------------------------------------------------------------------

TEST(DeviceOrderTest, NoOrderOfBlocksThreadsAndStreamsChangesABit) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    Pair pair("tiny-bias-qknorm-6x2-q8_0", "cuda-quantized/q8_0+q8_0/w4",
              MakeHostExecutor({.seed = seed}));
    pair.ExpectEqualGeneration();
  }
}

TEST(DeviceOrderTest, EveryAccessIsOneThatTheModelAllows) {
  Pair pair("tiny-gqa-9x3-q8_0", "cuda-quantized/q8_0+q8_0/w4",
            MakeHostExecutor({.seed = 5, .checked = true}));
  pair.ExpectEqualStep(5, 3);
  pair.ExpectEqualStep(1, 4);
  pair.ExpectEqualRows();
}

// Longer than a window of 5 or 6 rows; a window of exact rows inside it; experts of either kind.
TEST(DeviceOrderTest, FamiliesKeepTheModelToo) {
  for (const char* preset : {"tiny-mistral-6x2-q8_0", "tiny-gemma2-5x1-q8_0", "tiny-gemma3-3x1-f16",
                             "tiny-qwen2moe-3x1-f16", "tiny-qwen3moe-4x1-q4_0"}) {
    for (const bool checked : {true, false}) {
      SCOPED_TRACE(preset);
      const auto device = MakeHostExecutor({.seed = 5, .checked = checked});
      const bool blocks = Takes(*PresetModel(preset), "cuda-quantized/q8_0+q8_0/w4");
      Pair pair(preset, blocks ? "cuda-quantized/q8_0+q8_0/w4" : "cuda", device);
      pair.ExpectEqualStep(8, 3);
      pair.ExpectEqualStep(1, 4);
      pair.ExpectEqualRows();
    }
  }
}

TEST(DeviceLayersTest, AnyNumberOfLayersOnTheDeviceGivesTheSameBits) {
  for (const int32_t layers : {0, 1, 2, 4, 5}) {
    SCOPED_TRACE(layers);
    Pair pair("tiny-bias-qknorm-6x2-q8_0", "cuda", NewDefaultDevice(), layers);
    pair.ExpectEqualGeneration();
    EXPECT_EQ(pair.device.engine.device_use().layer_steps % std::max(layers, 1), 0);
  }
}

TEST(DeviceLayersTest, RunsAsManyLayersThereAsTheCacheHasRowsOnTheDevice) {
  Pair pair("tiny-bias-qknorm-6x2-q8_0", "hybrid/2", NewDefaultDevice());
  pair.ExpectEqualStep(3, 1);
  EXPECT_EQ(pair.device.engine.device_use().layer_steps, 2);
}

TEST(DeviceLayersTest, RunsOnTheHostForACacheOfAnotherDevice) {
  const auto model = PresetModel("tiny-mqa-4x1-f16");
  Transformer engine(model, {.device = NewDefaultDevice()});
  const auto cache = NewCache(*model, "cuda", NewDefaultDevice());
  const std::vector<int32_t> tokens = {1, 2, 3}, positions = {0, 1, 2};
  engine.Forward(tokens, positions, *cache);
  EXPECT_EQ(engine.device_use().layer_steps, 0);
}

TEST(DeviceOptionsTest, RefusesWhatItCannotDo) {
  class NoHook : public ProjectionHook {
    void Apply(int32_t, Projection, std::span<const float>, std::span<float>,
               int32_t) const override {}
  } hook;
  const auto model = PresetModel("tiny-mqa-4x1-f16");
  EXPECT_THROW(Transformer(model, {.hook = &hook, .device = NewDefaultDevice()}),
               std::invalid_argument);
  EXPECT_THROW(Transformer(model, {.device = NewDefaultDevice(), .device_layers = -1}),
               std::invalid_argument);
}

std::string Refusal(const SyntheticSpec& spec, int32_t layers) {
  const auto model = Model::Load(MakeSyntheticModel(spec, 1));
  try {
    Transformer(model, {.device = MakeHostExecutor(), .device_layers = layers});
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DeviceOptionsTest, RefusesModelsThatAreTooLargeForTheKernels) {
  SyntheticSpec spec = SyntheticPreset("tiny-mqa-4x1-f16");
  spec.head_dim = 272;
  EXPECT_EQ(Refusal(spec, 1),
            "device: model 'tiny-mqa-4x1-f16': 272 elements of a head; the kernels take up to 256 "
            "(run the model on the host)");
  spec = SyntheticPreset("tiny-mixtral-4x2-q8_0");
  spec.dim = spec.ffn_dim = 32;
  spec.num_layers = 1;
  spec.experts = 1024;
  EXPECT_EQ(Refusal(spec, 1), "accepted");
  spec.experts = 1025;
  EXPECT_EQ(Refusal(spec, 1),
            "device: model 'tiny-mixtral-4x2-q8_0': 1025 experts; the kernels take up to 1024 (run "
            "the model on the host)");
}

// ---- Traces -----------------------------------------------------------------------------------

TEST(DeviceTraceTest, ShowsEveryStageInTheHostsOrder) {
  for (const char* preset : {"tiny-bias-qknorm-6x2-q8_0", "tiny-granite-6x3-q8_0",
                             "tiny-gemma2-5x1-q8_0", "tiny-qwen2moe-3x1-f16"}) {
    for (const char* cache : {"cuda", "hybrid/1"}) {
      SCOPED_TRACE(std::string(preset) + " " + cache);
      Pair pair(preset, cache, NewDefaultDevice());
      DigestTrace device, host;
      for (const int32_t count : {4, 1}) {
        EXPECT_EQ(pair.device.Step(count, 3, &device), pair.host.Step(count, 3, &host));
      }
      ASSERT_EQ(device.entries().size(), host.entries().size());
      for (size_t i = 0; i < host.entries().size(); ++i) {
        EXPECT_EQ(device.entries()[i], host.entries()[i])
            << "layer " << host.entries()[i].layer << " " << StageName(host.entries()[i].stage);
      }
    }
  }
}

// ---- Graphs -----------------------------------------------------------------------------------

TEST(DecodeGraphTest, IsRecordedOnceAndReplayedForEveryPosition) {
  for (const char* cache : {"cuda", "cuda-quantized/q8_0+q8_0/w4"}) {
    Pair pair("tiny-headdim128-2x1-q8_0", cache, NewDefaultDevice());
    pair.ExpectEqualStep(5, 1);
    for (int32_t i = 0; i < 7; ++i) pair.ExpectEqualStep(1, i);
    EXPECT_EQ(pair.device.engine.device_use().graph_steps, 7) << cache;
    EXPECT_EQ(pair.device.engine.device_use().graphs_recorded, 1) << cache;
  }
}

TEST(DecodeGraphTest, IsRightAfterARollbackBetweenReplays) {
  Pair pair("tiny-headdim128-2x1-q8_0", "cuda-quantized/q8_0+q8_0/w4", NewDefaultDevice());
  pair.ExpectEqualStep(6, 1);
  for (int32_t i = 0; i < 9; ++i) {
    pair.ExpectEqualStep(1, i);
    if (i % 3 == 2) pair.Rollback(pair.host.cache->current_length() - 2);
  }
  pair.ExpectEqualRows();
  EXPECT_EQ(pair.device.engine.device_use().graphs_recorded, 1);
}

TEST(DecodeGraphTest, SequencesThatTakeTurnsHaveGraphsOfTheirOwn) {
  const auto device = NewDefaultDevice();
  Pair pair("tiny-mqa-4x1-f16", "cuda", device);
  const auto& model = pair.device.engine.model();
  const auto other = NewCache(model, "cuda", device);
  const auto other_twin = NewCache(model, HostTwin("cuda"), nullptr);
  for (int32_t i = 0; i < 4; ++i) {
    pair.ExpectEqualStep(1, i);
    const std::vector<int32_t> token = {7 * i + 1}, position = {i};
    EXPECT_EQ(Bits(pair.device.engine.Forward(token, position, *other)),
              Bits(pair.host.engine.Forward(token, position, *other_twin)));
  }
  EXPECT_EQ(pair.device.engine.device_use().graph_steps, 8);
  EXPECT_EQ(pair.device.engine.device_use().graphs_recorded, 2);
}

// ---- Batches ----------------------------------------------------------------------------------

TEST(DeviceBatchTest, PrefillBesideDecodeGivesTheBitsOfEachAlone) {
  const auto device = MakeHostExecutor({.seed = 3});
  const auto model = PresetModel("tiny-gqa-9x3-q8_0");
  const std::vector<std::string> names = {"cuda", "cuda-quantized/q8_0+q4_0/w0", "cuda"};
  const std::vector<std::vector<int32_t>> steps = {{5, 1, 1}, {1, 7, 1}, {3, 3, 1}};
  Transformer engine(model, {.max_step_tokens = 6, .device = device});
  Transformer host(model, {});
  std::vector<std::unique_ptr<KvCache>> caches, twins;
  for (const std::string& name : names) {
    caches.push_back(NewCache(*model, name, device));
    twins.push_back(NewCache(*model, HostTwin(name), nullptr));
  }
  const auto vocab = static_cast<size_t>(model->config().vocab_size);
  for (size_t step = 0; step < 3; ++step) {
    std::vector<std::vector<int32_t>> tokens, positions;
    for (size_t i = 0; i < names.size(); ++i) {
      positions.push_back(Iota(caches[i]->current_length(), steps[i][step]));
      tokens.push_back(Iota(static_cast<int32_t>(10 * i + step), steps[i][step]));
    }
    std::vector<BatchSequence> batch;
    for (size_t i = 0; i < names.size(); ++i) {
      batch.push_back({.tokens = tokens[i], .positions = positions[i], .cache = caches[i].get()});
    }
    const std::vector<uint32_t> together = Bits(engine.ForwardBatch(batch));
    for (size_t i = 0; i < names.size(); ++i) {
      const auto alone = Bits(host.Forward(tokens[i], positions[i], *twins[i]));
      const auto begin = together.begin() + static_cast<std::ptrdiff_t>(i * vocab);
      EXPECT_EQ(std::vector<uint32_t>(begin, begin + static_cast<std::ptrdiff_t>(vocab)), alone)
          << "sequence " << i << ", step " << step;
      EXPECT_EQ(DigestOfCache(*caches[i]), DigestOfCache(*twins[i]));
    }
  }
  EXPECT_GT(engine.device_use().layer_steps, 0);
}

// What a verifier of drafts wants: logits of several last tokens, in one step on the device.
TEST(DeviceBatchTest, SeveralRowsOfLogitsOfASequence) {
  for (const int32_t layers : {INT32_MAX, 1}) {
    Pair pair("tiny-untied-4x2-q8_0", "cuda", NewDefaultDevice(), layers);
    pair.ExpectEqualStep(4, 1);
    const std::vector<int32_t> tokens = {9, 8, 7, 6, 5}, positions = {4, 5, 6, 7, 8};
    const auto logits = [&](Side& side) {
      const BatchSequence sequence = {
          .tokens = tokens, .positions = positions, .cache = side.cache.get(), .logits = 3};
      return Bits(side.engine.ForwardBatch({&sequence, 1}));
    };
    const int64_t before = pair.device.engine.device_use().layer_steps;
    const auto there = logits(pair.device);
    EXPECT_EQ(there.size(), 3u * 320u);
    EXPECT_EQ(there, logits(pair.host));
    EXPECT_GT(pair.device.engine.device_use().layer_steps, before);
    pair.ExpectEqualRows();
    pair.ExpectEqualStep(1, 2);
  }
}

// ---- Failures ---------------------------------------------------------------------------------

class StopAt final : public TraceSink {
 public:
  StopAt(int32_t layer, Stage stage) : layer_(layer), stage_(stage) {}
  void OnStage(const StageRows& rows) override {
    if (rows.layer == layer_ && rows.stage == stage_) throw std::runtime_error("stop");
  }

 private:
  int32_t layer_;
  Stage stage_;
};

TEST(DeviceFaultTest, F1_AStepThatThrowsLeavesNoRow) {
  for (const Stage stage : {Stage::kKey, Stage::kKeyRope, Stage::kCacheKey, Stage::kFfnOut}) {
    SCOPED_TRACE(StageName(stage));
    Pair pair("tiny-headdim128-2x1-q8_0", "cuda-quantized/q8_0+q8_0/w4", NewDefaultDevice());
    pair.ExpectEqualStep(5, 1);
    StopAt stop(1, stage);
    EXPECT_THROW(pair.device.Step(2, 9, &stop), std::runtime_error);
    EXPECT_THROW(pair.host.Step(2, 9, &stop), std::runtime_error);
    pair.ExpectEqualRows();
    pair.ExpectEqualStep(1, 2);
    pair.ExpectEqualRows();
  }
}

}  // namespace
}  // namespace lockstep::testing
