#include "caches/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

namespace lockstep {
namespace {

// Vector of the public-domain reference splitmix64.c with seed 1234567.
TEST(RandomTest, MatchesTheReferenceSplitMix64) {
  Random random(1234567);
  constexpr std::array<uint64_t, 3> kExpected = {6457827717110365317u, 3203168211198807973u,
                                                 9817491932198370423u};
  for (uint64_t expected : kExpected) EXPECT_EQ(random.Next(), expected);
}

TEST(RandomTest, BelowReachesEveryValueAndNoOther) {
  Random random(7);
  std::array<int, 5> counts{};
  for (int i = 0; i < 5000; ++i) ++counts.at(random.Below(5));
  for (int count : counts) EXPECT_GT(count, 800);
}

TEST(RandomTest, BetweenCoversTheWholeInt32Range) {
  Random random(3);
  bool low_half = false, high_half = false;
  for (int i = 0; i < 100; ++i) {
    const int32_t value =
        random.Between(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    (value < 0 ? low_half : high_half) = true;
  }
  EXPECT_TRUE(low_half && high_half);
  EXPECT_EQ(random.Between(-4, -4), -4);
}

TEST(RandomTest, SplitStreamsAreRepeatableAndDistinct) {
  const Random root(99);
  Random a = root.Split(1), again = root.Split(1), b = root.Split(2);
  const uint64_t first = a.Next();
  EXPECT_EQ(first, again.Next());
  EXPECT_NE(first, b.Next());
}

}  // namespace
}  // namespace lockstep
