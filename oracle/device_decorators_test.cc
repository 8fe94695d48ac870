#include "oracle/device_decorators.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "caches/registry.h"
#include "oracle/decorators.h"
#include "oracle/faulty_cache.h"

namespace lockstep {
namespace {

constexpr KvGeometry kGeometry = {
    .num_layers = 2, .num_kv_heads = 1, .head_dim = 32, .max_length = 8};

class DeviceDecoratorsTest : public testing::Test {
 protected:
  std::unique_ptr<KvCache> New(std::string_view name) {
    return ParseCacheSpec(name).make({.geometry = kGeometry, .sequences = 1, .device = device_});
  }

  // One row at `position` through the device side, by the path that it grants.
  void Write(DeviceKv& kv, int32_t position) {
    const std::vector<float> row(32, 1.0f);
    stream_->Upload(row.data(), rows_.address(), 32 * 4);
    if (kv.TryReserveDeviceSlot(0, {&position, 1}, *stream_)) {
      kv.CommitDeviceSlot(0, {&position, 1}, *stream_);
    } else {
      kv.UpdateOnDevice(0, {&position, 1}, rows_.all(), rows_.all(), *stream_);
    }
    kv.ViewOnDevice(0, {&position, 1}, *stream_);
    stream_->Synchronize();
  }

  std::shared_ptr<Device> device_ = MakeHostExecutor();
  std::unique_ptr<DeviceStream> stream_ = device_->NewStream();
  DeviceBuffer<float> rows_{*device_, 32};
};

TEST_F(DeviceDecoratorsTest, UpdateOnlyRefusesEveryDeviceSlot) {
  UpdateOnlyCache cache(New("cuda"));
  DeviceKv* kv = cache.device_kv(0);
  ASSERT_NE(kv, nullptr);
  EXPECT_EQ(&kv->device(), device_.get());
  const int32_t position = 0;
  EXPECT_TRUE(cache.inner().device_kv(0)->TryReserveDeviceSlot(0, {&position, 1}, *stream_));
  EXPECT_FALSE(kv->TryReserveDeviceSlot(0, {&position, 1}, *stream_));
  EXPECT_THROW(kv->TryReserveDeviceSlot(2, {}, *stream_), std::out_of_range);
  Write(*kv, 0);
  EXPECT_EQ(cache.length(0), 1);
}

TEST_F(DeviceDecoratorsTest, CountsTheCallsOfAnEngineOnADevice) {
  CountingCache direct(New("cuda"));
  Write(*direct.device_kv(0), 0);
  EXPECT_EQ(direct.layer(0).reserve_granted, 1);
  EXPECT_EQ(direct.layer(0).commits, 1);
  EXPECT_EQ(direct.layer(0).rows_committed, 1);
  EXPECT_EQ(direct.layer(0).views, 1);
  EXPECT_EQ(direct.layer(0).on_device, 3);
  EXPECT_EQ(direct.layer(1), Counters());

  CountingCache legacy(std::make_unique<UpdateOnlyCache>(New("cuda")));
  Write(*legacy.device_kv(0), 0);
  EXPECT_EQ(legacy.layer(0).reserve_refused, 1);
  EXPECT_EQ(legacy.layer(0).updates, 1);
  EXPECT_EQ(legacy.layer(0).on_device, 3);
  const int32_t outside = 8;
  EXPECT_THROW(
      legacy.device_kv(0)->UpdateOnDevice(0, {&outside, 1}, rows_.all(), rows_.all(), *stream_),
      std::out_of_range);
  EXPECT_EQ(legacy.layer(0).threw, 1);
}

TEST_F(DeviceDecoratorsTest, ShowTheLayersThatTheCacheHasOnTheDevice) {
  CountingCache counting(std::make_unique<UpdateOnlyCache>(New("hybrid/1")));
  EXPECT_NE(counting.device_kv(0), nullptr);
  EXPECT_EQ(counting.device_kv(1), nullptr);
  EXPECT_THROW(counting.device_kv(2), std::out_of_range);
}

// What decorates the host's calls alone must not be passed by.
TEST_F(DeviceDecoratorsTest, OneThatDecoratesTheHostAloneHidesTheDevice) {
  FaultyCache faulty(New("cuda"), ParsePlant("refuse-reserve:layer=0"));
  RecordingCache recording(New("cuda"));
  EXPECT_EQ(faulty.device_kv(0), nullptr);
  EXPECT_EQ(recording.device_kv(0), nullptr);
}

}  // namespace
}  // namespace lockstep
