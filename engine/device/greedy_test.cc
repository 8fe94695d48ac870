// Greedy tokens from a device: the host's, and nothing but they come to the host.
#include <gtest/gtest.h>

#include <memory>

#include "caches/forwarding_device.h"
#include "caches/memory_watch.h"
#include "engine/device/forward_test_util.h"
#include "engine/generate.h"

namespace lockstep::testing {
namespace {

struct Traffic {
  int64_t to_device = 0;  // bytes
  int64_t to_host = 0;
  int64_t allocated = 0;
};

// Counts what is copied. A copy in a recording would be counted once, so there is none.
class CountingStream final : public ForwardingStream {
 public:
  CountingStream(std::unique_ptr<DeviceStream> inner, Traffic* traffic)
      : ForwardingStream(std::move(inner)), traffic_(*traffic) {}

  void Upload(const void* host, std::byte* device, int64_t bytes) override {
    Count(&traffic_.to_device, bytes);
    ForwardingStream::Upload(host, device, bytes);
  }
  void Download(const std::byte* device, void* host, int64_t bytes) override {
    Count(&traffic_.to_host, bytes);
    ForwardingStream::Download(device, host, bytes);
  }
  void BeginCapture() override {
    recording_ = true;
    ForwardingStream::BeginCapture();
  }
  std::unique_ptr<DeviceGraph> EndCapture() override {
    recording_ = false;
    return ForwardingStream::EndCapture();
  }

 private:
  void Count(int64_t* count, int64_t bytes) const {
    EXPECT_FALSE(recording_) << "a copy between host and device in a graph";
    *count += bytes;
  }

  Traffic& traffic_;
  bool recording_ = false;
};

class CountingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  std::unique_ptr<DeviceMemory> Allocate(int64_t bytes) override {
    traffic_.allocated += bytes;
    return ForwardingDevice::Allocate(bytes);
  }
  std::unique_ptr<DeviceStream> NewStream() override {
    return std::make_unique<CountingStream>(inner().NewStream(), &traffic_);
  }

  // What was counted since the call before.
  Traffic Take() { return std::exchange(traffic_, {}); }

 private:
  Traffic traffic_;
};

constexpr int64_t kTokenBytes = 4;

struct GreedySteps {
  std::vector<int32_t> device, host;

  // A prefill and decode steps, each of the token before.
  void Run(Pair* pair, int32_t prompt, int32_t decoded) {
    std::vector<int32_t> tokens = SomeTokens(pair->host.engine.model().config(), prompt);
    for (int32_t i = 0; i <= decoded; ++i) {
      const std::vector<int32_t> positions =
          Iota(pair->host.cache->current_length(), static_cast<int32_t>(tokens.size()));
      device.push_back(pair->device.engine.ForwardGreedy(tokens, positions, *pair->device.cache));
      host.push_back(ArgMax(pair->host.engine.Forward(tokens, positions, *pair->host.cache)));
      tokens = {host.back()};
    }
  }
};

TEST(GreedyTest, GivesTheArgmaxOfTheHostsLogits) {
  for (const char* preset :
       {"tiny-untied-4x2-q8_0", "tiny-ragged-3x1-f32", "tiny-granite-6x3-q8_0"}) {
    for (const char* cache : {"cuda", "hybrid/1"}) {
      SCOPED_TRACE(std::string(preset) + " " + cache);
      Pair pair(preset, cache, NewDefaultDevice());
      GreedySteps steps;
      steps.Run(&pair, 5, 6);
      EXPECT_EQ(steps.device, steps.host);
      pair.ExpectEqualRows();
      pair.ExpectEqualStep(1, 3);  // by the graph of the greedy steps
      const bool whole = std::string_view(cache) == "cuda";
      EXPECT_EQ(pair.device.engine.device_use().graphs_recorded, whole ? 1 : 0);
    }
  }
}

TEST(GreedyTest, BringsOneNumberToTheHost) {
  const auto device = std::make_shared<CountingDevice>(NewDefaultDevice());
  Pair pair("tiny-untied-4x2-q8_0", "cuda", device);
  const int64_t vocab = pair.host.engine.model().config().vocab_size;
  GreedySteps steps;
  steps.Run(&pair, 5, 1);  // and all that is allocated once
  device->Take();
  steps.Run(&pair, 1, 3);
  const Traffic greedy = device->Take();
  EXPECT_EQ(greedy.to_host, 4 * kTokenBytes);
  EXPECT_EQ(greedy.to_device, 4 * 2 * kTokenBytes) << "tokens and positions";
  pair.ExpectEqualStep(1, 3);
  EXPECT_EQ(device->Take().to_host, vocab * 4) << "logits, which were asked for";
  steps.Run(&pair, 6, 0);
  EXPECT_EQ(device->Take().to_host, kTokenBytes) << "a prefill";
  EXPECT_EQ(steps.device, steps.host);
}

TEST(GreedyTest, GenerationWithoutADigestBringsItsTokensAlone) {
  const auto device = std::make_shared<CountingDevice>(NewDefaultDevice());
  Pair pair("tiny-untied-4x2-q8_0", "cuda", device);
  const std::vector<int32_t> prompt = {5, 1, 7};
  device->Take();
  const GenerateResult tokens = Generate(pair.device.engine, *pair.device.cache, prompt,
                                         {.max_new_tokens = 9, .logits_digest = false});
  EXPECT_EQ(device->Take().to_host, 9 * kTokenBytes);
  const GenerateResult all =
      Generate(pair.host.engine, *pair.host.cache, prompt, {.max_new_tokens = 9});
  EXPECT_EQ(tokens.tokens, all.tokens);
  EXPECT_EQ(tokens.logits_digest, DigestBuilder().Finish());
  EXPECT_NE(all.logits_digest, tokens.logits_digest);
}

TEST(DeviceMemoryTest, TheHostHasNoScratchWhenAllLayersAreOnTheDevice) {
  const auto device = std::make_shared<CountingDevice>(MakeHostExecutor());
  Pair pair("tiny-untied-4x2-q8_0", "cuda", device);
  const MemoryWatch watch({});
  device->Take();
  int64_t of_device = 0;
  // Buffers that were allocated since, but for those of the device.
  const auto on_host = [&] {
    of_device += device->Take().allocated;
    int64_t bytes = -of_device;
    for (const WatchedMemory& memory : watch.live()) bytes += static_cast<int64_t>(memory.bytes);
    return bytes;
  };
  const std::vector<int32_t> tokens = {3, 4}, positions = {0, 1}, next = {2};
  pair.device.engine.ForwardGreedy(tokens, positions, *pair.device.cache);
  EXPECT_EQ(on_host(), 0);
  EXPECT_GT(of_device, 0);
  pair.device.engine.Forward({&tokens[0], 1}, next, *pair.device.cache);
  EXPECT_EQ(on_host(), pair.device.engine.model().config().vocab_size * int64_t{4}) << "logits";
}

}  // namespace
}  // namespace lockstep::testing
