#include "reports/device_limits.h"

#include <gtest/gtest.h>

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

TEST(DeviceLimitsTest, SizesComeFromFreeMemory) {
  const auto device = MakeHostExecutor();
  const DeviceLimitOptions options = DeviceLimitOptionsFor(*device, false);
  EXPECT_EQ(options.copy_bytes % 16, 0);
  EXPECT_LE(options.copy_bytes, int64_t{2} << 30);
}

}  // namespace
}  // namespace lockstep
