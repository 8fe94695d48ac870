#include "reports/device_limits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "caches/forwarding_device.h"

namespace lockstep {
namespace {

TEST(DeviceLimitsTest, EveryLimitIsMeasuredOnTheExecutor) {
  for (const bool checked : {false, true}) {
    const auto device = MakeHostExecutor({.seed = 3, .checked = checked});
    const DeviceLimits limits = MeasureDeviceLimits(*device, DeviceLimitOptionsFor(*device, true));
    EXPECT_TRUE(limits.right);
    EXPECT_FALSE(limits.device_clock);
    EXPECT_GT(limits.copy_bytes_per_second, 0.0);
    EXPECT_GT(limits.fmas_per_second, 0.0);
    EXPECT_GT(limits.products_per_second, 0.0);
  }
}

// A device that says how much of its memory is free.
class FilledDevice final : public ForwardingDevice {
 public:
  explicit FilledDevice(int64_t free) : ForwardingDevice(MakeHostExecutor()), free_(free) {}
  int64_t FreeBytes() const override { return free_; }
  std::unique_ptr<DeviceStream> NewStream() override { return inner().NewStream(); }

 private:
  int64_t free_;
};

int64_t CopyBytesWith(int64_t free) {
  return DeviceLimitOptionsFor(FilledDevice(free), /*simulated=*/false).copy_bytes;
}

TEST(DeviceLimitsTest, SizesComeFromFreeMemory) {
  EXPECT_EQ(CopyBytesWith(int64_t{8} << 30), int64_t{1} << 30) << "an eighth";
  EXPECT_EQ(CopyBytesWith(8'000'100), 1'000'000) << "of whole 16 bytes";
  EXPECT_EQ(CopyBytesWith(int64_t{140} << 30), int64_t{2} << 30) << "no more";
  EXPECT_EQ(CopyBytesWith(0), 64 << 10) << "a copy of nothing measures nothing";
  EXPECT_EQ(DeviceLimitOptionsFor(FilledDevice(int64_t{8} << 30), true).copy_bytes, 64 << 10);
}

}  // namespace
}  // namespace lockstep
