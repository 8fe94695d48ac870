#include "caches/device/host_executor.h"

#include <gmock/gmock.h>

#include <numeric>

#include "caches/device/test_kernels.h"
#include "caches/error.h"

namespace lockstep {

namespace {

using testing::ElementsAre;

// What every device does is device_test's.
TEST(HostExecutorTest, WorkRunsWhenSomebodyWaits) {
  for (const uint64_t seed : {0u, 1u, 2u, 3u}) {
    const auto device = MakeHostExecutor({.seed = seed});
    std::vector<int32_t> x(96);
    std::iota(x.begin(), x.end(), 0);
    std::vector<int32_t> sums(3);
    DeviceBuffer<int32_t> input(*device, 96);
    DeviceBuffer<int32_t> output(*device, 3);
    const auto stream = device->NewStream();
    stream->Upload(x.data(), input.address(), 96 * 4);
    Launch<BlockSumKernel>(*stream, {.x = 3}, {input.all(), output.all()});
    stream->Download(output.address(), sums.data(), 3 * 4);
    EXPECT_THAT(sums, ElementsAre(0, 0, 0));
    stream->Synchronize();
    EXPECT_THAT(sums, ElementsAre(496, 1520, 2544));
  }
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

// A vector on a device, with a position that kernels read.
struct Slots {
  explicit Slots(std::shared_ptr<Device> of)
      : device(std::move(of)), stream(device->NewStream()), position(*device, 1), y(*device, 64) {
    stream->Fill(position.address(), 0, 4);
    stream->Fill(y.address(), 0, 64 * 4);
  }
  void Put(int32_t blocks, int32_t offset = 0) {
    Launch<PutKernel>(*stream, {.x = blocks}, {position.all(), offset, 1, y.all()});
  }
  std::vector<int32_t> Read() {
    std::vector<int32_t> values(64);
    stream->Download(y.address(), values.data(), 64 * 4);
    stream->Synchronize();
    return values;
  }
  std::shared_ptr<Device> device;
  std::unique_ptr<DeviceStream> stream;
  DeviceBuffer<int32_t> position;
  DeviceBuffer<int32_t> y;
};

TEST(HostExecutorTest, EveryBlockRunsOnceInAnyOrderOnAnyNumberOfThreads) {
  for (const int32_t threads : {1, 2, 5}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Slots slots(MakeHostExecutor({.seed = seed, .threads = threads}));
      for (int32_t blocks = 1; blocks <= 64; blocks += 9) {
        slots.Put(blocks);
        slots.Put(64 - blocks, blocks);
      }
      EXPECT_THAT(slots.Read(), testing::Each(8)) << seed << " " << threads;
    }
  }
}

TEST(HostExecutorTest, AFailureEndsItsStreamAndThoseThatWaitForIt) {
  for (const int32_t threads : {1, 3}) {
    const auto device = MakeHostExecutor({.threads = threads});
    Slots failing(device);
    Slots waiting(device);
    Slots other(device);
    const auto event = device->NewEvent();
    failing.Put(65);
    failing.Put(1);
    failing.stream->Record(event.get());
    waiting.stream->Wait(*event);
    waiting.Put(1);
    other.Put(1);
    EXPECT_THROW(failing.stream->Synchronize(), DeviceError);
    EXPECT_THROW(failing.stream->Synchronize(), DeviceError) << "each time";
    EXPECT_THROW(waiting.stream->Synchronize(), DeviceError);
    EXPECT_THROW(device->Synchronize(*event), DeviceError);
    EXPECT_EQ(other.Read()[0], 1);
    Slots later(device);
    later.Put(64);
    EXPECT_THAT(later.Read(), testing::Each(1));
  }
}

TEST(HostExecutorTest, CopiesStayWithinAMemory) {
  const auto device = MakeHostExecutor();
  DeviceBuffer<int32_t> a(*device, 4);
  DeviceBuffer<int32_t> b(*device, 4);
  std::vector<int32_t> host(8);
  const auto stream = device->NewStream();
  EXPECT_THROW(stream->Upload(host.data(), a.address(1), 16), DeviceError);
  EXPECT_THROW(stream->Download(a.address(-1), host.data(), 8), DeviceError);
  EXPECT_THROW(stream->Copy(a.address(), b.address(2), 12), DeviceError);
  EXPECT_THROW(stream->Copy(a.address(), a.address(1), 8), DeviceError) << "overlapping";
  EXPECT_THROW(stream->Fill(reinterpret_cast<std::byte*>(host.data()), 0, 4), DeviceError);
  stream->Fill(a.address(), 0, 16);
  stream->Copy(a.address(), b.address(), 16);
  stream->Upload(host.data(), a.address(4), 0);
  stream->Synchronize();
}

TEST(DevicesTest, NoCudaDeviceIsSaid) {
  const auto device = MakeCudaDevice();
  EXPECT_EQ(device == nullptr, !WhyNoCudaDevice().empty());
  if (device == nullptr) {
    EXPECT_THROW(MakeDevice("cuda"), Error);
  } else {
    EXPECT_EQ(device->name(), "cuda:0");
  }
  EXPECT_THROW(MakeDevice("gpu"), Error);
}

}  // namespace
}  // namespace lockstep
