// What every device does (caches/device.h): memory, copies, streams, events, graphs.
#include "caches/device.h"

#include <gmock/gmock.h>

#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "caches/device/test_devices.h"
#include "caches/device/test_kernels.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::ElementsAre;
using Values = std::vector<int32_t>;

class DeviceTest : public testing::TestWithParam<device_test::TestDevice> {
 protected:
  void SetUp() override { device_test::SkipWithout(GetParam()); }

  // A buffer of zeros, a stream, and a position that kernels read.
  struct Slots {
    explicit Slots(Device& device)
        : stream(device.NewStream()), position(device, 1), y(device, 64) {
      stream->Fill(position.address(), 0, 4);
      stream->Fill(y.address(), 0, 64 * 4);
    }
    void Add(int32_t value, int32_t at = 0) {
      Launch<PutKernel>(*stream, {}, {position.all(), at, value, y.all()});
    }
    Values Read() {
      Values values(64);
      stream->Download(y.address(), values.data(), 64 * 4);
      stream->Synchronize();
      return values;
    }
    std::unique_ptr<DeviceStream> stream;
    DeviceBuffer<int32_t> position, y;
  };

  std::shared_ptr<Device> device_ = GetParam().Make();
};

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, device_test::TestDevices(),
                         [](const auto& i) { return i.param.Name(); });

TEST_P(DeviceTest, IsTheOneThatWasAskedFor) {
  EXPECT_EQ(device_->name(), GetParam().cuda ? "cuda:0" : "host-executor");
  EXPECT_NE(device_->Description(), "");
  EXPECT_GT(device_->FreeBytes(), 0);
}

TEST_P(DeviceTest, MemoryIsAlignedAndApart) {
  std::vector<std::unique_ptr<DeviceMemory>> all;
  for (const int64_t bytes : {1, 64, 65, 4096, 100001}) {
    const auto& memory = all.emplace_back(device_->Allocate(bytes));
    EXPECT_EQ(memory->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->address()) % 64, 0u);
    for (const auto& other : all) {
      if (other == memory) continue;
      EXPECT_TRUE(other->address() + other->bytes() <= memory->address() ||
                  memory->address() + bytes <= other->address());
    }
  }
}

TEST_P(DeviceTest, CopiesAndFillsAnyBytes) {
  std::vector<uint8_t> there(1000), back(1000, 0xee);
  std::iota(there.begin(), there.end(), uint8_t{0});
  DeviceBuffer<uint8_t> a(*device_, 1000), b(*device_, 1000);
  const auto stream = device_->NewStream();
  stream->Upload(there.data(), a.address(), 1000);
  stream->Fill(b.address(), 7, 1000);
  stream->Copy(a.address(13), b.address(101), 401);
  stream->Fill(b.address(200), 9, 3);
  stream->Upload(there.data() + 1, b.address(999), 1);
  stream->Copy(a.address(), b.address(), 0);
  stream->Download(b.address(1), back.data() + 1, 999);
  stream->Synchronize();
  std::vector<uint8_t> expected(1000, 7);
  std::copy_n(there.begin() + 13, 401, expected.begin() + 101);
  std::fill_n(expected.begin() + 200, 3, uint8_t{9});
  expected[0] = 0xee;  // nothing was read back into it
  expected[999] = 1;
  EXPECT_EQ(back, expected);
}

TEST_P(DeviceTest, RunsBlocksPhasesAndSharedArrays) {
  Values x(32 * 500);
  std::iota(x.begin(), x.end(), 0);
  Values sums(500), expected(500);
  for (size_t i = 0; i < x.size(); ++i) expected[i / 32] += x[i];
  DeviceBuffer<int32_t> input(*device_, 32 * 500), output(*device_, 500);
  const auto stream = device_->NewStream();
  stream->Upload(x.data(), input.address(), 32 * 500 * 4);
  Launch<BlockSumKernel>(*stream, {.x = 500}, {input.all(), output.all()});
  stream->Download(output.address(), sums.data(), 500 * 4);
  stream->Synchronize();
  EXPECT_EQ(sums, expected);
}

TEST_P(DeviceTest, AStreamRunsItsWorkInOrder) {
  Slots slots(*device_);
  for (int32_t i = 0; i < 600; ++i) {  // more than a queue holds
    slots.Add(1);
    if (i % 100 == 99) slots.stream->Copy(slots.y.address(0), slots.y.address(1 + i / 100), 4);
  }
  const Values y = slots.Read();
  EXPECT_THAT(Values(y.begin(), y.begin() + 7), ElementsAre(600, 100, 200, 300, 400, 500, 600));
}

// Without the event the second stream could read before the first has added.
TEST_P(DeviceTest, AStreamWaitsForAnEventOfAnother) {
  Slots first(*device_), second(*device_);
  const auto ready = device_->NewEvent(), read = device_->NewEvent();
  Values seen(8);
  for (int32_t round = 0; round < 8; ++round) {
    if (round > 0) first.stream->Wait(*read);
    for (int32_t i = 0; i < 50; ++i) first.Add(1);
    first.stream->Record(ready.get());
    second.stream->Wait(*ready);
    second.stream->Copy(first.y.address(), second.y.address(round), 4);
    second.stream->Record(read.get());
  }
  device_->Synchronize(*read);
  const Values y = second.Read();
  EXPECT_THAT(Values(y.begin(), y.begin() + 8), ElementsAre(50, 100, 150, 200, 250, 300, 350, 400));
}

TEST_P(DeviceTest, TheHostWaitsForAnEvent) {
  Slots slots(*device_);
  const auto begin = device_->NewEvent(), end = device_->NewEvent();
  Values values(64, -1);
  slots.stream->Record(begin.get());
  for (int32_t i = 0; i < 20; ++i) slots.Add(3, i);
  slots.stream->Download(slots.y.address(), values.data(), 64 * 4);
  slots.stream->Record(end.get());
  device_->Synchronize(*end);
  EXPECT_EQ(values[19], 3);
  EXPECT_EQ(values[20], 0);
  const auto elapsed = device_->Milliseconds(*begin, *end);
  EXPECT_EQ(elapsed.has_value(), GetParam().cuda) << "the executor has no clock of its own";
  EXPECT_GE(elapsed.value_or(0), 0.0);
}

// What changes from run to run is read from device memory; arguments stay what they were.
TEST_P(DeviceTest, AGraphKeepsTheArgumentsThatItWasRecordedWith) {
  Slots slots(*device_);
  int32_t position = 0;
  int32_t offset = 8;
  slots.stream->Synchronize();
  slots.stream->BeginCapture();
  slots.Add(1);
  slots.Add(10, offset);
  const auto graph = slots.stream->EndCapture();
  offset = 20;
  EXPECT_THAT(slots.Read(), Each(0)) << "what is recorded does not run";
  for (position = 0; position < 3; ++position) {
    slots.stream->Upload(&position, slots.position.address(), 4);
    slots.stream->Launch(*graph);
    slots.stream->Synchronize();
  }
  slots.stream->Launch(*graph);
  slots.stream->Launch(*graph);
  const Values y = slots.Read();
  EXPECT_THAT(Values(y.begin(), y.begin() + 4), ElementsAre(1, 1, 3, 0));
  EXPECT_THAT(Values(y.begin() + 8, y.begin() + 12), ElementsAre(10, 10, 30, 0));
}

// Its copies read and write the same host memory each time, as it is then.
TEST_P(DeviceTest, AGraphWithCopies) {
  Slots slots(*device_);
  Values from(4, 0), to(4, 0);
  slots.stream->Synchronize();
  slots.stream->BeginCapture();
  slots.stream->Upload(from.data(), slots.y.address(), 16);
  slots.stream->Copy(slots.y.address(0), slots.y.address(10), 8);
  slots.stream->Fill(slots.y.address(11), 0, 4);
  slots.Add(1, 10);
  slots.stream->Download(slots.y.address(9), to.data(), 16);
  const auto graph = slots.stream->EndCapture();
  for (int32_t round = 1; round <= 3; ++round) {
    from.assign(4, round);
    slots.stream->Launch(*graph);
    slots.stream->Synchronize();
    EXPECT_THAT(to, ElementsAre(0, round + 1, 0, 0));
  }
}

TEST_P(DeviceTest, WorkOutlivesNeitherItsStreamNorItsMemory) {
  Values values(64, -1);
  DeviceBuffer<int32_t> kept(*device_, 64);
  {
    Slots slots(*device_);
    for (int32_t i = 0; i < 200; ++i) slots.Add(1);
    slots.stream->Copy(slots.y.address(), kept.address(), 64 * 4);
  }
  const auto stream = device_->NewStream();
  stream->Download(kept.address(), values.data(), 64 * 4);
  stream->Synchronize();
  EXPECT_EQ(values[0], 200);
}

TEST_P(DeviceTest, SeveralThreadsHaveStreamsOfTheirOwn) {
  constexpr int32_t kRounds = 300;
  const auto work = [&](int32_t salt, Values* sums) {
    const auto stream = device_->NewStream();
    DeviceBuffer<int32_t> input(*device_, 32), output(*device_, 1);
    for (int32_t i = 0; i < kRounds; ++i) {
      const Values x(32, salt + i);
      int32_t sum = 0;
      stream->Upload(x.data(), input.address(), 32 * 4);
      Launch<BlockSumKernel>(*stream, {.x = 1}, {input.all(), output.all()});
      stream->Download(output.address(), &sum, 4);
      stream->Synchronize();
      sums->push_back(sum);
    }
  };
  Values here, there;
  std::thread other([&] { work(1000, &there); });
  work(0, &here);
  other.join();
  for (int32_t i = 0; i < kRounds; ++i) {
    EXPECT_EQ(here[static_cast<size_t>(i)], 32 * i);
    EXPECT_EQ(there[static_cast<size_t>(i)], 32 * (1000 + i));
  }
}

// Errors of a GPU that leave it usable. What the executor says is host_executor_test's.
TEST_P(DeviceTest, AGpuThatRefusesGoesOn) {
  if (!GetParam().cuda) return;
  EXPECT_THROW(device_->Allocate(int64_t{1} << 50), std::bad_alloc);
  Slots slots(*device_);
  EXPECT_THROW(Launch<PutKernel>(*slots.stream, {.x = 1, .y = 70000},
                                 {slots.position.all(), 0, 1, slots.y.all()}),
               DeviceError);
  slots.Add(5);
  EXPECT_EQ(slots.Read()[0], 5);
}

}  // namespace
}  // namespace lockstep
