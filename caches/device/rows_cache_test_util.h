// What the tests of caches with rows on a device share: an engine that writes them there, and the
// caches with the orders in which devices run.
#ifndef LOCKSTEP_CACHES_DEVICE_ROWS_CACHE_TEST_UTIL_H_
#define LOCKSTEP_CACHES_DEVICE_ROWS_CACHE_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "caches/device.h"
#include "caches/device/device_layer.h"
#include "caches/device/row_kernels.h"
#include "caches/device/test_devices.h"
#include "caches/device_kv.h"
#include "caches/kv_cache.h"
#include "caches/registry.h"
#include "caches/storage_test_util.h"

namespace lockstep::device_test {

using storage_test::Range;
using storage_test::Rows;
using storage_test::Write;

inline constexpr KvGeometry kGeometry = {
    .num_layers = 2, .num_kv_heads = 3, .head_dim = 32, .max_length = 24};
inline const int64_t kStride = kGeometry.kv_stride();

// Everything that the host sees of a cache.
inline std::vector<Digest> Seen(const KvCache& cache) {
  std::vector<Digest> seen = {DigestOfCache(cache), cache.StorageDigest()};
  KvView view;
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    DigestBuilder lengths;
    lengths.AddU32(static_cast<uint32_t>(cache.length(layer)));
    seen.push_back(lengths.Finish());
    for (int32_t query = 0; query < cache.length(layer); ++query) {
      cache.ViewForQuery(layer, query, &view);
      const KvRows rows = DecodeRows(view, kStride);
      seen.push_back(DigestOfFloats(rows.keys));
      seen.push_back(DigestOfFloats(rows.values));
    }
  }
  return seen;
}

// An engine on the device: rows of floats there, a stream of its own.
class Engine {
 public:
  explicit Engine(Device& device) : device_(device), stream_(device.NewStream()) {}

  DeviceStream& stream() { return *stream_; }

  FloatRows Bring(int32_t layer, const std::vector<int32_t>& positions, int32_t version) {
    host_.push_back(Rows(kGeometry, layer, positions, version, true));
    const Global<const float> keys = Bring(host_.back());
    host_.push_back(Rows(kGeometry, layer, positions, version, false));
    return {keys, Bring(host_.back())};
  }

  // What a kernel that computes rows does with them: it stores them where the slot says.
  void Store(const DeviceKvSlot& slot, int32_t layer, int32_t version) {
    const auto positions = Range(slot.first, slot.first + slot.count);
    const FloatRows rows = Bring(layer, positions, version);
    for (int32_t first = 0; first < slot.count; first += device::kRowsOfLaunch) {
      const int32_t count = std::min(slot.count - first, device::kRowsOfLaunch);
      device::StoreRowsKernel::Args args = {
          .kv_stride = kStride,
          .halves = {{slot.key_type, slot.keys, slot.exact_keys},
                     {slot.value_type, slot.values, slot.exact_values}},
          .x = {{rows.keys.data + first * kStride, count * kStride},
                {rows.values.data + first * kStride, count * kStride}},
          .exact_first = slot.exact_first + first,
          .positions = {}};
      std::iota(args.positions, args.positions + count, slot.first + first);
      Launch<device::StoreRowsKernel>(*stream_, {.x = count, .y = 2}, args);
    }
  }

  bool WriteDirect(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions,
                   int32_t version) {
    DeviceKv* kv = cache->device_kv(layer);
    const auto slot = kv->TryReserveDeviceSlot(layer, positions, *stream_);
    if (!slot) return false;
    Store(*slot, layer, version);
    kv->CommitDeviceSlot(layer, positions, *stream_);
    return true;
  }

  void Update(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions,
              int32_t version) {
    const FloatRows rows = Bring(layer, positions, version);
    cache->device_kv(layer)->UpdateOnDevice(layer, positions, rows.keys, rows.values, *stream_);
  }

 private:
  Global<const float> Bring(const std::vector<float>& rows) {
    buffers_.emplace_back(device_, static_cast<int64_t>(rows.size()));
    stream_->Upload(rows.data(), buffers_.back().address(), static_cast<int64_t>(rows.size()) * 4);
    return buffers_.back().all();
  }

  Device& device_;
  std::vector<std::vector<float>> host_;
  std::vector<DeviceBuffer<float>> buffers_;
  std::unique_ptr<DeviceStream> stream_;  // goes first
};

struct Kind {
  std::string name;  // of the registry
  std::string host;  // the cache on the host that gives the same bits
};

class DeviceCacheTest : public testing::TestWithParam<std::tuple<Kind, TestDevice>> {
 protected:
  void SetUp() override { SkipWithout(std::get<1>(GetParam())); }

  const Kind& kind() const { return std::get<0>(GetParam()); }
  std::unique_ptr<KvCache> Make() const {
    return ParseCacheSpec(kind().name).make({.geometry = kGeometry, .device = device_});
  }
  // The cache on the host.
  std::unique_ptr<KvCache> Twin() const {
    return ParseCacheSpec(kind().host).make({.geometry = kGeometry});
  }
  // Layers that lie on the device.
  int32_t layers() const { return kind().name == "hybrid/1" ? 1 : kGeometry.num_layers; }

  std::shared_ptr<Device> device_ = std::get<1>(GetParam()).Make();
  Engine engine_{*device_};
};

// Steps that append, overwrite and leave gaps, longer and shorter than the window.
struct Step {
  int32_t rollback;  // to this length before the step, or -1
  std::vector<int32_t> positions;
};
inline const std::vector<Step> kSteps = {
    {-1, Range(0, 3)},   {-1, Range(3, 4)},  {-1, Range(4, 12)},  {9, Range(9, 10)},
    {-1, Range(12, 14)}, {-1, Range(2, 9)},  {-1, Range(14, 15)}, {6, Range(8, 20)},
    {0, Range(1, 24)},   {23, Range(23, 24)}};

inline std::string TestName(const testing::TestParamInfo<DeviceCacheTest::ParamType>& info) {
  std::string name = std::get<0>(info.param).name + "_" + std::get<1>(info.param).Name();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

inline auto AllKindsAndOrders() {
  return testing::Combine(
      testing::Values(Kind{"cuda", "quantized/f16+f16/w0"},
                      Kind{"hybrid/1", "quantized/f16+f16/w0"},
                      Kind{"cuda-quantized/q8_0+q4_0/w0", "quantized/q8_0+q4_0/w0"},
                      Kind{"cuda-quantized/q8_0+q8_0/w4", "quantized/q8_0+q8_0/w4-f16"},
                      Kind{"cuda-quantized/f16+q4_0/w1", "quantized/f16+q4_0/w1-f16"},
                      Kind{"cuda-quantized/bf16+bf16/w0", "quantized/bf16+bf16/w0"},
                      Kind{"cuda-quantized/q8_0+bf16/w3", "quantized/q8_0+bf16/w3-f16"},
                      Kind{"cuda-quantized/q4_0+f32/w30", "quantized/q4_0+f32/w30-f16"}),
      TestDevices());
}

}  // namespace lockstep::device_test

#endif  // LOCKSTEP_CACHES_DEVICE_ROWS_CACHE_TEST_UTIL_H_
