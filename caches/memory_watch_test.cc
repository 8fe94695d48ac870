#include "caches/memory_watch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "caches/aligned_buffer.h"

namespace lockstep {
namespace {

constexpr int64_t kCount = 48;  // three lines: no canary between the end and the page

float volatile sink;

TEST(MemoryWatchTest, WithoutAWatchNothingIsRegistered) {
  EXPECT_EQ(MemoryWatch::Current(), nullptr);
  EXPECT_EQ(PoisonsNewMemory(), kPoisonOnAllocation);
  const AlignedBuffer<float> before(kCount);
  const MemoryWatch watch({});
  EXPECT_TRUE(watch.live().empty());
}

TEST(MemoryWatchTest, RegistersLiveBuffersInOrderAndPoisonsThem) {
  for (const GuardPages guard : {GuardPages::kNone, GuardPages::kAfter, GuardPages::kBefore}) {
    const MemoryWatch watch({.guard = guard, .poison = 0x5a});
    std::optional<AlignedBuffer<float>> first(std::in_place, kCount, 16);
    const AlignedBuffer<std::byte> second(17);
    ASSERT_EQ(watch.live().size(), 2u);
    EXPECT_EQ(watch.live()[0].bytes, kCount * sizeof(float));
    EXPECT_EQ(watch.live()[0].piece, 64u);
    EXPECT_EQ(watch.live()[1].data, second.data());
    EXPECT_EQ(watch.live()[1].bytes, 17u);
    for (const WatchedMemory& memory : watch.live()) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data) % kCacheAlignment, 0u);
      for (size_t i = 0; i < memory.bytes; ++i) ASSERT_EQ(memory.data[i], std::byte{0x5a});
    }
    first->data()[0] = 1.0f;
    first->Poison(first->span().first(1));
    EXPECT_EQ(watch.live()[0].data[3], std::byte{0x5a});
    first.reset();
    ASSERT_EQ(watch.live().size(), 1u);
    EXPECT_EQ(watch.live()[0].serial, 1);
    EXPECT_TRUE(watch.Audit().empty());
  }
}

TEST(MemoryWatchTest, TheInnermostWatchCountsAndABufferMayOutliveIt) {
  const MemoryWatch outer({});
  std::optional<MemoryWatch> inner(std::in_place, MemoryWatchOptions{});
  const AlignedBuffer<float> buffer(kCount);
  EXPECT_TRUE(outer.live().empty());
  EXPECT_EQ(inner->live().size(), 1u);
  inner.reset();
  const AlignedBuffer<float> next(kCount);
  EXPECT_EQ(outer.live().size(), 1u);
}

TEST(MemoryWatchTest, CanariesShowAWriteBesideABuffer) {
  for (const GuardPages guard : {GuardPages::kNone, GuardPages::kAfter, GuardPages::kBefore}) {
    const MemoryWatch watch({.guard = guard});
    AlignedBuffer<std::byte> buffer(65);  // 63 bytes remain of the second line
    ASSERT_TRUE(watch.Audit().empty());
    const std::byte kept = buffer.data()[65];
    buffer.data()[65] = std::byte{1};
    ASSERT_EQ(watch.Audit().size(), 1u);
    EXPECT_EQ(watch.Audit()[0], "buffer 0: a write 1 bytes past its end");
    buffer.data()[65] = kept;
    EXPECT_TRUE(watch.Audit().empty());
  }
  const MemoryWatch watch({.guard = GuardPages::kAfter});
  AlignedBuffer<std::byte> buffer(64);
  buffer.data()[-2] = std::byte{1};
  ASSERT_EQ(watch.Audit().size(), 1u);
  EXPECT_EQ(watch.Audit()[0], "buffer 0: a write 2 bytes before its begin");
}

TEST(MemoryWatchTest, AWriteBesideABufferShowsAfterItsEnd) {
  const MemoryWatch watch({.guard = GuardPages::kAfter});
  { const AlignedBuffer<std::byte> right(65); }
  EXPECT_TRUE(watch.Audit().empty());
  for (const int64_t at : {66, 67}) {
    AlignedBuffer<std::byte> wrong(65);
    wrong.data()[at] = std::byte{1};
  }
  { const AlignedBuffer<std::byte> right(65); }
  ASSERT_EQ(watch.Audit().size(), 1u) << "the first is enough";
  EXPECT_EQ(watch.Audit()[0], "buffer 1: a write 2 bytes past its end");
}

TEST(MemoryWatchDeathTest, TouchingAGuardPageEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto touch = [](GuardPages guard, int64_t at, bool writes) {
    const MemoryWatch watch({.guard = guard});
    AlignedBuffer<float> buffer(kCount);
    float volatile* data = buffer.data();
    if (writes) {
      data[at] = 1.0f;
    } else {
      sink = data[at];
    }
  };
  EXPECT_DEATH(touch(GuardPages::kAfter, kCount, false), "");
  EXPECT_DEATH(touch(GuardPages::kAfter, kCount, true), "");
  EXPECT_DEATH(touch(GuardPages::kBefore, -1, false), "");
  EXPECT_DEATH(touch(GuardPages::kBefore, -1, true), "");
  touch(GuardPages::kAfter, kCount - 1, true);
  touch(GuardPages::kBefore, 0, true);
  touch(GuardPages::kNone, kCount, true);  // a canary
}

}  // namespace
}  // namespace lockstep
