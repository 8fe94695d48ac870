// A forward pass on a device beside the same one on the host, for tests.
#ifndef LOCKSTEP_ENGINE_DEVICE_FORWARD_TEST_UTIL_H_
#define LOCKSTEP_ENGINE_DEVICE_FORWARD_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "caches/device.h"
#include "caches/registry.h"
#include "engine/model/test_support.h"
#include "engine/transformer.h"

namespace lockstep::testing {

inline constexpr int32_t kMaxLength = 48;

// The cache on the host that keeps rows as this one does.
inline std::string HostTwin(const std::string& cache) {
  static const std::map<std::string, std::string> twins = {
      {"cuda", "quantized/f16+f16/w0"},
      {"hybrid/1", "quantized/f16+f16/w0"},
      {"hybrid/2", "quantized/f16+f16/w0"},
      {"cuda-quantized/q8_0+q8_0/w4", "quantized/q8_0+q8_0/w4-f16"},
      {"cuda-quantized/q8_0+q8_0/w2", "quantized/q8_0+q8_0/w2-f16"},
      {"cuda-quantized/f16+f16/w2", "quantized/f16+f16/w2-f16"},
      {"cuda-quantized/q8_0+q4_0/w0", "quantized/q8_0+q4_0/w0"},
      {"cuda-quantized/q4_0+f16/w3", "quantized/q4_0+f16/w3-f16"},
      {"cuda-quantized/bf16+bf16/w4", "quantized/bf16+bf16/w4-f16"},
  };
  return twins.at(cache);
}

inline std::unique_ptr<KvCache> NewCache(const Model& model, const std::string& name,
                                         const std::shared_ptr<Device>& device) {
  return ParseCacheSpec(name).make(
      {.geometry = model.config().geometry(kMaxLength), .sequences = 1, .device = device});
}

// An engine, a cache, and what they leave step by step.
struct Side {
  Side(const std::shared_ptr<const Model>& model, const TransformerOptions& options,
       const std::string& cache_name)
      : engine(model, options), cache(NewCache(*model, cache_name, options.device)) {}

  std::vector<uint32_t> Step(int32_t count, int32_t salt, TraceSink* trace = nullptr) {
    const std::vector<int32_t> positions = Iota(cache->current_length(), count);
    std::vector<int32_t> tokens;
    for (const int32_t position : positions) {
      tokens.push_back((position * 17 + salt) % engine.model().config().vocab_size);
    }
    return Bits(engine.Forward(tokens, positions, *cache, trace));
  }

  Transformer engine;
  std::unique_ptr<KvCache> cache;
};

// The same steps on a device and on the host.
struct Pair {
  Side device;
  Side host;

  Pair(const std::shared_ptr<const Model>& model, const std::string& cache,
       const std::shared_ptr<Device>& on, int32_t layers = INT32_MAX)
      : device(model, {.device = on, .device_layers = layers}, cache),
        host(model, {}, HostTwin(cache)) {}
  Pair(std::string_view preset, const std::string& cache, const std::shared_ptr<Device>& on,
       int32_t layers = INT32_MAX)
      : Pair(PresetModel(preset), cache, on, layers) {}

  void ExpectEqualStep(int32_t count, int32_t salt) {
    EXPECT_EQ(device.Step(count, salt), host.Step(count, salt)) << count << " rows";
  }
  void ExpectEqualRows() { EXPECT_EQ(DigestOfCache(*device.cache), DigestOfCache(*host.cache)); }
  void Rollback(int32_t length) {
    device.cache->Rollback(length);
    host.cache->Rollback(length);
  }

  // Prefill, decode, a rejected draft, other tokens, a chunk longer than the window.
  void ExpectEqualGeneration() {
    ExpectEqualStep(9, 3);
    for (int32_t i = 0; i < 4; ++i) ExpectEqualStep(1, 5 + i);
    Rollback(device.cache->current_length() - 2);
    ExpectEqualStep(1, 11);
    ExpectEqualStep(6, 13);
    ExpectEqualStep(1, 17);
    ExpectEqualRows();
  }
};

// Whether heads of the model are whole blocks of the cache.
inline bool Takes(const Model& model, const std::string& cache) {
  return model.config().head_dim % ParseCacheSpec(cache).head_dim_multiple == 0;
}

}  // namespace lockstep::testing

#endif  // LOCKSTEP_ENGINE_DEVICE_FORWARD_TEST_UTIL_H_
