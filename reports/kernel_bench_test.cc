#include "reports/kernel_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/kernels.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::vector<KernelResult> Tiny() {
  static const std::vector<KernelResult> results =
      RunKernelBench({.isas = {},
                      .array_bytes = 1 << 16,
                      .seconds = 0,
                      .rounds = 2,
                      .limits = {.read_bytes = int64_t{1} << 20, .seconds = 1e-5, .attempts = 1}});
  return results;
}

TEST(KernelBenchTest, EveryKernelOfEveryTableComputesTheSame) {
  const std::vector<KernelResult> results = Tiny();
  EXPECT_EQ(results.size(), 49 * AvailableKernels().size() + 5);  // codecs and digest: once
  EXPECT_THAT(KernelMismatches(results), testing::IsEmpty());
  for (const KernelResult& result : results) {
    EXPECT_EQ(result.seconds.size(), 2u) << result.kernel;
    EXPECT_GT(result.work.bytes, 0) << result.kernel;
    for (double seconds : result.seconds) EXPECT_GT(seconds, 0) << result.kernel;
    for (double seconds : result.limit_seconds) EXPECT_GT(seconds, 0) << result.kernel;
  }
}

TEST(KernelBenchTest, ChangedBitsAreNamed) {
  std::vector<KernelResult> results = Tiny();
  if (AvailableKernels().size() == 1) GTEST_SKIP() << "one kernel table: nothing to compare";
  results[1].digest.low ^= 1;
  const auto lines = KernelMismatches(results);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("matmul f32, 1 token"));
}

TEST(KernelBenchTest, TableHoldsTimesAndFractions) {
  std::vector<KernelResult> results = {Tiny()[0]};
  results[0].seconds = {2e-6, 4e-6, 8e-6};
  results[0].limit_seconds = {1e-6, 1e-6, 2e-6};
  results[0].work = {.bytes = 4000, .dot_multiply_adds = 0, .fma_multiply_adds = 8000};
  const Table table = KernelTableOf(results);
  EXPECT_EQ(table.rows[0][2], "4.0");
  EXPECT_EQ(table.rows[0][3], "1.0");
  EXPECT_EQ(table.rows[0][4], "2.0");
  EXPECT_EQ(table.rows[0][7], "25.0 % [25.0, 37.5]");
  EXPECT_THAT(KernelMarkdown(results, "the command"), HasSubstr("| matmul f32, 1 token |"));
  EXPECT_THAT(KernelJson(results, "the command"), HasSubstr("\"limit_seconds\""));
}

}  // namespace
}  // namespace lockstep
