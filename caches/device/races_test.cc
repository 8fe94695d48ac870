// Kernels and streams that break the model, each in one way, and how each is seen: by checked mode,
// and, where the order matters, by a result that depends on the seed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "caches/device.h"
#include "caches/device_host_block.h"

namespace lockstep {
namespace {

enum class Fault {
  kNone,
  kMissingBarrier,
  kTwoWritersOfShared,
  kTwoBlocksWrite,
  kReadsOtherBlock,
  kUnwrittenShared,
  kSharedOutsidePhase,
  kGlobalOutsidePhase,
  kSharedBounds,
  kGlobalBounds,
  kOddPhase,
  kSharedTwice,
  kMisaligned,
};

constexpr int32_t kBlocks = 4;
constexpr int32_t kLanes = 8;
constexpr int32_t kElements = kBlocks * kLanes;

// y[i] = x[i] + the neighbour's x within the block, through shared memory, and in y[kElements + b]
// the block's first element.
template <Fault kFault>
struct NeighbourKernel {
  static constexpr char kName[] = "neighbour";
  static constexpr int32_t kThreads = kLanes;
  struct Args {
    Global<const int32_t> x;
    Global<int32_t> y;
  };
  template <typename Block>
  struct SharedOf {
    SharedArray<Block, int32_t, kThreads> lanes;
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto x = block.Use(args.x);
    const auto y = block.Use(args.y);
    auto& shared = block.template Shared<SharedOf<Block>>();
    const int64_t first = block.x() * int64_t{kThreads};
    const auto put = [&](int32_t t) {
      const bool clash = kFault == Fault::kTwoWritersOfShared && t == 3;
      shared.lanes[clash ? 2 : t] = x[first + t];
      if (kFault == Fault::kSharedBounds && t == 5) shared.lanes[kThreads] = 0;
    };
    const auto sum = [&](int32_t t) {
      const int32_t other = (t + 1) % kThreads;
      y[first + t] = shared.lanes[t] + shared.lanes[other];
      if (kFault == Fault::kGlobalBounds && t == 6) y[y.size()] = 0;
    };
    if constexpr (kFault == Fault::kOddPhase) {
      block.template ForThreads<kThreads / 2>([&](int32_t t) { shared.lanes[t] = 0; });
    }
    if constexpr (kFault == Fault::kSharedTwice) block.template Shared<SharedOf<Block>>();
    if constexpr (kFault == Fault::kMisaligned) {
      const auto bytes = block.Use(
          Global<const uint8_t>{reinterpret_cast<const uint8_t*>(args.x.data), args.x.size * 4});
      block.template ForThreads<kThreads>([&](int32_t t) {
        shared.lanes[t] = static_cast<int32_t>(bytes.template Load<uint16_t>(4 * t + 1));
      });
    }
    if constexpr (kFault == Fault::kSharedOutsidePhase) shared.lanes[0] = 1;
    if constexpr (kFault == Fault::kGlobalOutsidePhase) y[first] = 1;
    if constexpr (kFault == Fault::kMissingBarrier) {
      block.template ForThreads<kThreads>([&](int32_t t) {
        put(t);
        sum(t);
      });
    } else {
      if constexpr (kFault != Fault::kUnwrittenShared) block.template ForThreads<kThreads>(put);
      block.template ForThreads<kThreads>(sum);
    }
    block.template ForThreads<kThreads>([&](int32_t t) {
      if (t != 0) return;
      const int64_t at = kFault == Fault::kTwoBlocksWrite ? 0 : block.x();
      const int64_t from =
          kFault == Fault::kReadsOtherBlock ? (block.x() + 1) % kBlocks * int64_t{kThreads} : first;
      y[kElements + at] = y[from];
    });
  }
};

}  // namespace

LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kNone>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kMissingBarrier>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kTwoWritersOfShared>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kTwoBlocksWrite>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kReadsOtherBlock>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kUnwrittenShared>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kSharedOutsidePhase>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kGlobalOutsidePhase>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kSharedBounds>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kGlobalBounds>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kOddPhase>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kSharedTwice>)
LOCKSTEP_HOST_KERNEL(NeighbourKernel<Fault::kMisaligned>)

// More threads than a block of any GPU has.
struct WideKernel {
  static constexpr char kName[] = "wide";
  static constexpr int32_t kThreads = 2048;
  struct Args {
    Global<int32_t> y;
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto y = block.Use(args.y);
    block.template ForThreads<kThreads>([&](int32_t t) { y[t] = t; });
  }
};
LOCKSTEP_HOST_KERNEL(WideKernel)

namespace {

using testing::AllOf;
using testing::HasSubstr;
using Values = std::vector<int32_t>;

// y of a launch on a device; a difference of an earlier launch's memory cannot show.
template <Fault kFault>
Values Result(const HostExecutorOptions& options) {
  const auto device = MakeHostExecutor(options);
  Values x(kElements);
  std::iota(x.begin(), x.end(), 100);
  Values y(kElements + kBlocks, -1);
  DeviceBuffer<int32_t> input(*device, kElements);
  DeviceBuffer<int32_t> output(*device, kElements + kBlocks);
  const auto stream = device->NewStream();
  stream->Upload(x.data(), input.address(), kElements * 4);
  stream->Upload(y.data(), output.address(), (kElements + kBlocks) * 4);
  Launch<NeighbourKernel<kFault>>(*stream, {.x = kBlocks}, {input.all(), output.all()});
  stream->Download(output.address(), y.data(), (kElements + kBlocks) * 4);
  stream->Synchronize();
  return y;
}

template <Fault kFault>
std::string Finding() {
  try {
    Result<kFault>({.seed = 3, .checked = true});
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "nothing";
}

// Of 16 seeds; the sound kernel gives one.
template <Fault kFault>
size_t DifferentResults() {
  std::set<Values> results;
  for (uint64_t seed = 0; seed < 16; ++seed) results.insert(Result<kFault>({.seed = seed}));
  return results.size();
}

TEST(RacesTest, ASoundKernelHasOneResultInAllModes) {
  EXPECT_EQ(DifferentResults<Fault::kNone>(), 1u);
  const Values expected = Result<Fault::kNone>({});
  EXPECT_EQ(expected[0], 100 + 101);
  EXPECT_EQ(expected[kElements + 3], 124 + 125);
  for (const uint64_t seed : {0u, 1u, 2u}) {
    EXPECT_EQ(Result<Fault::kNone>({.seed = seed, .threads = 3}), expected);
    EXPECT_EQ(Result<Fault::kNone>({.seed = seed, .threads = 3, .checked = true}), expected);
  }
}

TEST(RacesTest, MissingBarrier) {
  EXPECT_GT(DifferentResults<Fault::kMissingBarrier>(), 1u);
  EXPECT_THAT(Finding<Fault::kMissingBarrier>(),
              AllOf(HasSubstr("kernel neighbour"), HasSubstr("of shared array 0")));
}

TEST(RacesTest, TwoThreadsWriteOneSharedElement) {
  EXPECT_THAT(Finding<Fault::kTwoWritersOfShared>(),
              AllOf(HasSubstr("writes element 2 of shared array 0"), HasSubstr("no barrier")));
}

TEST(RacesTest, TwoBlocksWriteOneElement) {
  EXPECT_GT(DifferentResults<Fault::kTwoBlocksWrite>(), 1u);
  EXPECT_THAT(Finding<Fault::kTwoBlocksWrite>(),
              AllOf(HasSubstr("writes byte 128 of memory 2"), HasSubstr("no barrier")));
}

TEST(RacesTest, ABlockReadsWhatAnotherWrites) {
  EXPECT_GT(DifferentResults<Fault::kReadsOtherBlock>(), 1u);
  EXPECT_THAT(Finding<Fault::kReadsOtherBlock>(),
              AllOf(HasSubstr("of memory 2"), HasSubstr("no barrier")));
}

TEST(RacesTest, UnwrittenSharedMemory) {
  EXPECT_THAT(Finding<Fault::kUnwrittenShared>(),
              AllOf(HasSubstr("of shared array 0"), HasSubstr("nobody wrote")));
}

TEST(RacesTest, WritesBetweenPhases) {
  EXPECT_THAT(Finding<Fault::kSharedOutsidePhase>(),
              HasSubstr("element 0 of shared array 0 is written outside a phase"));
  EXPECT_THAT(Finding<Fault::kGlobalOutsidePhase>(), HasSubstr("is written outside a phase"));
}

TEST(RacesTest, OutOfBounds) {
  EXPECT_THAT(Finding<Fault::kSharedBounds>(),
              AllOf(HasSubstr("thread 5, phase 1"), HasSubstr("element 8 of a shared array of 8")));
  EXPECT_THAT(Finding<Fault::kGlobalBounds>(), HasSubstr("element 36 of global memory of 36"));
  EXPECT_THROW(Result<Fault::kGlobalBounds>({}), DeviceError) << "bounds hold in every mode";
}

// What a GPU would do otherwise, or crash at.
TEST(RacesTest, WhatTheExecutorAloneCouldDo) {
  EXPECT_THAT(Finding<Fault::kOddPhase>(), HasSubstr("a phase of 4 threads in a block of 8"));
  EXPECT_THAT(Finding<Fault::kSharedTwice>(), HasSubstr("shared arrays are made a second time"));
  EXPECT_THAT(Finding<Fault::kMisaligned>(),
              AllOf(HasSubstr("kernel neighbour"), HasSubstr("an access of 2 bytes that is not")));
}

TEST(RacesTest, LaunchesThatNoGpuTakes) {
  for (const bool checked : {false, true}) {
    const auto device = MakeHostExecutor({.checked = checked});
    DeviceBuffer<int32_t> buffer(*device, 2048);
    const auto stream = device->NewStream();
    stream->Fill(buffer.address(), 0, 2048 * 4);  // of which any sum is 0
    const auto launch = [&](const DeviceGrid& grid) -> std::string {
      try {
        Launch<NeighbourKernel<Fault::kNone>>(*stream, grid, {buffer.all(), buffer.all()});
      } catch (const DeviceError& error) {
        return error.what();
      }
      return "taken";
    };
    EXPECT_THAT(launch({.x = 1, .y = 65536}), HasSubstr("a grid of 1 x 65536 x 1 blocks of 8"));
    EXPECT_THAT(launch({.x = 1, .y = 1, .z = 65536}), HasSubstr("kernel neighbour"));
    EXPECT_EQ(launch({.x = 0, .y = 65536}), "taken") << "no blocks are no launch";
    EXPECT_THROW(Launch<WideKernel>(*stream, {}, {buffer.all()}), DeviceError);
    stream->Synchronize();
    EXPECT_EQ(launch({.x = 1, .y = 65535}), "taken");
  }
}

// Two streams, the second reads what the first writes.
Values OverTwoStreams(const HostExecutorOptions& options, bool with_event) {
  const auto device = MakeHostExecutor(options);
  const Values x(kElements, 7);
  Values y(kElements, -1);
  DeviceBuffer<int32_t> buffer(*device, kElements);
  const auto first = device->NewStream();
  const auto second = device->NewStream();
  const auto event = device->NewEvent();
  first->Fill(buffer.address(), 0, kElements * 4);
  first->Synchronize();
  first->Upload(x.data(), buffer.address(), kElements * 4);
  first->Record(event.get());
  if (with_event) second->Wait(*event);
  second->Download(buffer.address(), y.data(), kElements * 4);
  second->Synchronize();
  return y;
}

TEST(RacesTest, AMissingEventBetweenTwoStreams) {
  std::set<int32_t> seen;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    seen.insert(OverTwoStreams({.seed = seed}, false)[0]);
    EXPECT_EQ(OverTwoStreams({.seed = seed}, true)[0], 7);
    EXPECT_EQ(OverTwoStreams({.seed = seed, .checked = true}, true)[0], 7);
  }
  EXPECT_THAT(seen, testing::ElementsAre(0, 7));
  try {
    OverTwoStreams({.checked = true}, false);
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the download: touches what was touched by the "
                                              "upload on stream 0"),
                                    HasSubstr("no event is in between")));
  }
}

TEST(RacesTest, AWaitOfTheHostOrdersStreams) {
  const auto device = MakeHostExecutor({.seed = 5, .checked = true});
  DeviceBuffer<int32_t> buffer(*device, 1);
  const auto first = device->NewStream();
  const auto second = device->NewStream();
  const auto event = device->NewEvent();
  for (int32_t i = 0; i < 3; ++i) {
    first->Fill(buffer.address(), 1, 4);
    first->Synchronize();
    second->Fill(buffer.address(), 2, 4);
    second->Record(event.get());
    device->Synchronize(*event);
  }
  first->Fill(buffer.address(), 1, 4);
  second->Fill(buffer.address(), 2, 4);
  // The one that runs second fails.
  const auto synchronize_both = [&] {
    first->Synchronize();
    second->Synchronize();
  };
  EXPECT_THROW(synchronize_both(), DeviceError);
}

TEST(RacesTest, HostMemoryIsReusedTooEarly) {
  std::set<int32_t> seen;
  for (const bool waits : {true, false}) {
    const auto device = MakeHostExecutor({.seed = 1});
    DeviceBuffer<int32_t> buffer(*device, 1);
    const auto stream = device->NewStream();
    int32_t value = 1;
    int32_t read = 0;
    stream->Upload(&value, buffer.address(), 4);
    if (waits) stream->Synchronize();
    value = 2;
    stream->Download(buffer.address(), &read, 4);
    stream->Synchronize();
    seen.insert(read);
  }
  EXPECT_THAT(seen, testing::ElementsAre(1, 2));
}

TEST(RacesTest, WhatNobodyWrote) {
  const auto device = MakeHostExecutor({.checked = true});
  DeviceBuffer<int32_t> raw(*device, kElements);
  DeviceBuffer<int32_t> copied(*device, kElements);
  DeviceBuffer<int32_t> output(*device, kElements + kBlocks);
  const auto stream = device->NewStream();
  stream->Copy(raw.address(), copied.address(), kElements * 4);
  stream->Synchronize();
  Launch<NeighbourKernel<Fault::kNone>>(*stream, {.x = kBlocks}, {copied.all(), output.all()});
  try {
    stream->Synchronize();
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("reads byte 0 of memory 2, which nobody wrote"));
  }
}

TEST(RacesTest, AnArgumentThatIsNotOfTheDevice) {
  const auto device = MakeHostExecutor({.checked = true});
  Values host(kElements);
  DeviceBuffer<int32_t> output(*device, kElements + kBlocks);
  const auto stream = device->NewStream();
  Launch<NeighbourKernel<Fault::kNone>>(*stream, {.x = kBlocks},
                                        {{host.data(), kElements}, output.all()});
  try {
    stream->Synchronize();
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("128 bytes lies in no memory of the device"));
  }
}

}  // namespace
}  // namespace lockstep
