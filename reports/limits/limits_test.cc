#include "reports/limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "caches/aligned_buffer.h"
#include "engine/kernels.h"
#include "engine/stopwatch.h"
#include "engine/thread_team.h"
#include "reports/limits/isa_list.h"

namespace lockstep {
namespace {

std::atomic<uint64_t> sink = 0;  // what loops return

constexpr LimitOptions kSmall = {.read_bytes = int64_t{8} << 20, .seconds = 0.0005, .attempts = 6};

TEST(LimitsTest, EveryInstructionSetHasPeaksAndBetterOnesAreHigher) {
  MachineLimits limits(kSmall);
  const auto isas = limits.instruction_sets();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), "scalar");
  for (std::string_view isa : isas) {
    EXPECT_GT(limits.FmaPeak(isa, 1).value(), 1e7) << isa;
    EXPECT_GT(limits.DotPeak(isa, 1).value(), 1e7) << isa;
  }
  if (isas.back() == "avx512vnni") {  // wider by a factor of 4 and 16; interference costs some
    EXPECT_GT(*limits.FmaPeak("avx512vnni", 1), 1.5 * *limits.FmaPeak("scalar", 1));
    EXPECT_GT(*limits.DotPeak("avx512vnni", 1), 2 * *limits.DotPeak("scalar", 1));
  }
}

TEST(LimitsTest, WhatIsNotHereIsSaidSo) {
  MachineLimits limits(kSmall);
  EXPECT_FALSE(limits.FmaPeak("mmx", 1).has_value());
  EXPECT_FALSE(limits.DotPeak("", 1).has_value());
  EXPECT_EQ(limits.BarrierLatency().has_value(), UsableCpus() > 1);
}

TEST(LimitsTest, BandwidthAndLatencyAreOfAPlausibleSize) {
  MachineLimits limits(kSmall);
  for (int32_t threads : {1, 2, 3}) {
    const double bandwidth = limits.ReadBandwidth(threads);
    EXPECT_GT(bandwidth, 1e7) << threads;
    EXPECT_LT(bandwidth, 1e13) << threads;
  }
  if (const auto latency = limits.BarrierLatency()) {
    EXPECT_GT(*latency, 1e-9);
    EXPECT_LT(*latency, 1);
  }
}

// Every byte of the range is read: the result is the OR of all, whatever the number of streams.
TEST(LimitsTest, ReadingReadsEveryByte) {
  constexpr size_t kBytes = 3 * 4096;
  AlignedBuffer<std::byte> buffer(static_cast<int64_t>(kBytes));
  for (const internal::IsaLimits* isa : internal::AvailableIsaLimits()) {
    for (int streams : {1, 2, 4}) {
      std::memset(buffer.data(), 0, kBytes);
      EXPECT_EQ(isa->read(buffer.data(), kBytes, streams), 0u);
      for (size_t at = 0; at < kBytes; at += 64) {  // the first 8 bytes are in lane 0 of any vector
        buffer.data()[at] = std::byte{0x21};
        EXPECT_EQ(isa->read(buffer.data(), kBytes, streams), 0x21u)
            << isa->name << " " << streams << " streams, byte " << at;
        buffer.data()[at] = std::byte{0};
      }
    }
  }
}

// A loop that the compiler removed takes no time: twice the work has to take about twice as long.
TEST(LimitsTest, LoopsAreNotFolded) {
  const auto seconds = [](const internal::PeakLoop& loop, int64_t iterations) {
    double best = 1e9;
    for (int attempt = 0; attempt < 5; ++attempt) {
      const Stopwatch stopwatch;
      sink.fetch_xor(loop.run(iterations));
      best = std::min(best, stopwatch.seconds());
    }
    return best;
  };
  for (const internal::IsaLimits* isa : internal::AvailableIsaLimits()) {
    for (const internal::PeakLoop& loop : {isa->fma, isa->dots[0], isa->dots[1]}) {
      if (loop.run == nullptr) continue;
      EXPECT_GT(seconds(loop, 400'000) / seconds(loop, 50'000), 3) << isa->name;
      const double operations = loop.multiply_adds * 400'000;
      EXPECT_LT(operations / seconds(loop, 400'000), 1e12) << isa->name;
    }
  }
}

// What does not change from turn to turn may not be taken out of the loop: then three instructions
// would look as fast as the one that replaces them.
TEST(LimitsTest, ThreeInstructionsAreSlowerThanOne) {
  MachineLimits limits(kSmall);
  const auto one = limits.DotPeak("avx512vnni", 1);
  if (!one) GTEST_SKIP() << "no VNNI on this machine";
  EXPECT_LT(limits.DotPeak("avx512", 1).value(), 0.8 * *one);
}

TEST(LimitsTest, KernelTablesFindTheirInstructionSet) {
  const std::vector<std::string_view> isas = {"scalar", "avx2", "avx512", "avx512vnni"};
  for (std::string_view isa : isas) EXPECT_EQ(InstructionSetOf(isa, isas), isa);
  EXPECT_EQ(InstructionSetOf("avx2-portable", isas), "avx2");
  EXPECT_EQ(InstructionSetOf("avx512vnni-8x8", isas), "avx512vnni");
  EXPECT_EQ(InstructionSetOf("avx512vnni", {"scalar", "avx2", "avx512"}), "avx512");
  EXPECT_EQ(InstructionSetOf("sve", {"scalar", "neon"}), "neon");
}

TEST(LoadMeterTest, OwnWorkIsNotForeign) {
  const LoadMeter meter;
  const Stopwatch stopwatch;
  while (stopwatch.seconds() < 0.3) sink.fetch_add(1);
  const auto load = meter.Load();
  if (!load) GTEST_SKIP() << "/proc/stat says nothing here";
  EXPECT_GE(load->others, 0);
  EXPECT_LE(load->others + load->steal, 1.1);
}

}  // namespace
}  // namespace lockstep
