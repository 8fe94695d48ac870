#include "reports/write_bench.h"

#include <gtest/gtest.h>

#include "caches/error.h"

namespace lockstep {
namespace {

// 2 * kv_stride * 4 * layers: 2 * 192 * 4 * 30, and 2 * 1024 * 4 * 32, which is 256 KiB.
TEST(WriteBenchTest, BytesSavedAreThoseOfTheFormula) {
  const auto results = RunWriteBench({.caches = {"simple", "paged/4"}, .tokens = 3, .rounds = 2});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].handed_over, 46080);
  EXPECT_EQ(results[3].handed_over, 262144);
  for (const WriteBenchResult& r : results) EXPECT_EQ(r.handed_over, r.formula) << r.cache;
  EXPECT_TRUE(WriteBenchHolds(results));
  EXPECT_EQ(WriteTableOf(results).rows.size(), 4u);
}

TEST(WriteBenchTest, OtherBitsOrBytesDoNotHold) {
  WriteBenchResult good = {.handed_over = 8, .formula = 8, .equal_bits = true};
  EXPECT_TRUE(WriteBenchHolds({good}));
  WriteBenchResult bits = good, bytes = good;
  bits.equal_bits = false;
  bytes.handed_over = 4;
  EXPECT_FALSE(WriteBenchHolds({good, bits}));
  EXPECT_FALSE(WriteBenchHolds({bytes}));
}

TEST(WriteBenchTest, ACacheWithoutSlotsIsRefused) {
  EXPECT_THROW(RunWriteBench({.caches = {"quantized/q8_0+q8_0/w4"}}), Error);
}

}  // namespace
}  // namespace lockstep
