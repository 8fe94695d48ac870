#include "caches/device/host_executor.h"

#include <gmock/gmock.h>

#include <numeric>

#include "caches/device/test_kernels.h"

namespace lockstep {

namespace {

using testing::ElementsAre;

class HostExecutorTest : public testing::TestWithParam<uint64_t> {
 protected:
  std::shared_ptr<Device> device_ = MakeHostExecutor({.seed = GetParam()});
};

TEST_P(HostExecutorTest, RunsBlocksAndPhases) {
  std::vector<int32_t> x(96);
  std::iota(x.begin(), x.end(), 0);
  std::vector<int32_t> sums(3);
  DeviceBuffer<int32_t> input(*device_, 96);
  DeviceBuffer<int32_t> output(*device_, 3);
  const auto stream = device_->NewStream();
  stream->Upload(x.data(), input.address(), 96 * 4);
  Launch<BlockSumKernel>(*stream, {.x = 3}, {input.all(), output.all()});
  stream->Download(output.address(), sums.data(), 3 * 4);
  EXPECT_THAT(sums, ElementsAre(0, 0, 0)) << "work runs when somebody waits";
  stream->Synchronize();
  EXPECT_THAT(sums, ElementsAre(496, 1520, 2544));
}

TEST(CheckedExecutorTest, RunsAKernelThatKeepsTheModel) {
  const auto device = MakeHostExecutor({.seed = 9, .checked = true});
  const std::vector<int32_t> x(64, 1);
  std::vector<int32_t> sums(2);
  DeviceBuffer<int32_t> input(*device, 64);
  DeviceBuffer<int32_t> output(*device, 2);
  const auto stream = device->NewStream();
  stream->Upload(x.data(), input.address(), 64 * 4);
  Launch<BlockSumKernel>(*stream, {.x = 2}, {input.all(), output.all()});
  stream->Download(output.address(), sums.data(), 2 * 4);
  stream->Synchronize();
  EXPECT_THAT(sums, ElementsAre(32, 32));
}

INSTANTIATE_TEST_SUITE_P(Orders, HostExecutorTest, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace lockstep
