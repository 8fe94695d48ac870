// Against values that SciPy 1.10.1 gives for the same data, and against counting by hand.
#include "reports/rank_test.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

// scipy.stats.mannwhitneyu(a, b, method="exact"): statistic 17, p 0.1111111111111111.
TEST(RankTestTest, MannWhitneyIsThatOfScipyWithoutTies) {
  const std::vector<double> a = {19, 22, 16, 29, 24}, b = {20, 11, 17, 12};
  const RankTest test = MannWhitney(b, a);
  EXPECT_TRUE(test.exact);
  EXPECT_DOUBLE_EQ(test.statistic, 17);
  EXPECT_NEAR(test.p_value, 0.1111111111111111, 1e-15);
  EXPECT_DOUBLE_EQ(MannWhitney(a, b).statistic, 3);
  EXPECT_NEAR(MannWhitney(a, b).p_value, test.p_value, 1e-15);
}

// scipy.stats.mannwhitneyu(a, b, method="asymptotic"): statistic 8.5, p 0.08344982949310291.
TEST(RankTestTest, MannWhitneyIsThatOfScipyWithTies) {
  const std::vector<double> a = {1.1, 2.2, 2.2, 3.3, 4.4, 5.5, 5.5};
  const std::vector<double> b = {2.2, 3.3, 6.6, 7.7, 7.7, 8.8};
  const RankTest test = MannWhitney(b, a);
  EXPECT_FALSE(test.exact);
  EXPECT_DOUBLE_EQ(test.statistic, 8.5);
  EXPECT_NEAR(test.p_value, 0.08344982949310291, 1e-14);
}

// Two orders of 16 values in 12870 are this far out: 0.0001554001554001554.
TEST(RankTestTest, SeparatedSamplesGiveTheLeastValueThereIs) {
  const std::vector<double> low = {1, 2, 3, 4, 5, 6, 7, 8}, high = {9, 10, 11, 12, 13, 14, 15, 16};
  EXPECT_NEAR(MannWhitney(low, high).p_value, 0.0001554001554001554, 1e-17);
  EXPECT_NEAR(MannWhitney(low, low).p_value, 1, 1e-12);  // all ties, by approximation
}

// U of two and two values is 0, 1, 2, 2, 3, 4 over their six orders. Counted over all 6^k:
// all blocks separated 2 / 6^k; with k = 5, one step less 0.0015432098765432098.
TEST(RankTestTest, BlocksAddUpExactly) {
  const SampleBlock separated = {.baseline = {1, 2}, .subject = {3, 4}};
  const SampleBlock one_less = {.baseline = {1, 3}, .subject = {2, 4}};
  std::vector<SampleBlock> blocks(5, separated);
  EXPECT_NEAR(BlockedMannWhitney(blocks).p_value, 0.000257201646090535, 1e-17);
  EXPECT_DOUBLE_EQ(BlockedMannWhitney(blocks).statistic, 20);
  blocks[2] = one_less;
  EXPECT_NEAR(BlockedMannWhitney(blocks).p_value, 0.0015432098765432098, 1e-16);
  EXPECT_TRUE(BlockedMannWhitney(blocks).exact);
}

TEST(RankTestTest, WhatChangesBetweenBlocksCancels) {
  std::vector<SampleBlock> blocks;
  std::vector<double> baseline, subject;
  for (int i = 0; i < 6; ++i) {  // each subject is 1 % slower, each block 50 % slower than the last
    const double level = i % 2 == 0 ? 1 : 2;
    blocks.push_back(
        {.baseline = {level, 1.001 * level}, .subject = {1.01 * level, 1.011 * level}});
    baseline.insert(baseline.end(), blocks.back().baseline.begin(), blocks.back().baseline.end());
    subject.insert(subject.end(), blocks.back().subject.begin(), blocks.back().subject.end());
  }
  EXPECT_LT(BlockedMannWhitney(blocks).p_value, 1e-4);
  EXPECT_GT(MannWhitney(baseline, subject).p_value, 0.03);
}

TEST(RankTestTest, OneBlockIsMannWhitneyAndTiesCount) {
  const SampleBlock block = {.baseline = {20, 11, 17, 12}, .subject = {19, 22, 16, 29, 24}};
  EXPECT_NEAR(BlockedMannWhitney(std::vector{block}).p_value, 0.1111111111111111, 1e-15);
  const SampleBlock tied = {.baseline = {1, 1}, .subject = {1, 1}};
  EXPECT_DOUBLE_EQ(BlockedMannWhitney(std::vector(9, tied)).p_value, 1);
  const SampleBlock large = {.baseline = {1, 2, 3, 4, 5, 6, 7}, .subject = {8, 9, 10, 11, 12, 13}};
  EXPECT_FALSE(BlockedMannWhitney(std::vector{large}).exact);
  // |42 - 21| - 0.5 over sqrt(7 * 6 / 12 * 14) = 49^0.5: z = 20.5 / 7, twice its upper tail.
  EXPECT_NEAR(BlockedMannWhitney(std::vector{large}).p_value, 0.0034052358212947604, 1e-12);
}

// By hand: of 0.01, 0.04, 0.03, 0.005 the smallest is times 4, the next times 3, ...; never less
// than the one before.
TEST(RankTestTest, HolmStepsDown) {
  const std::vector<double> adjusted = HolmAdjusted(std::vector<double>{0.01, 0.04, 0.03, 0.005});
  ASSERT_EQ(adjusted.size(), 4u);
  EXPECT_DOUBLE_EQ(adjusted[3], 0.02);
  EXPECT_DOUBLE_EQ(adjusted[0], 0.03);
  EXPECT_DOUBLE_EQ(adjusted[2], 0.06);
  EXPECT_DOUBLE_EQ(adjusted[1], 0.06);
  EXPECT_DOUBLE_EQ(HolmAdjusted(std::vector<double>{0.9, 0.8})[0], 1);
}

// scipy.stats.norm.ppf.
TEST(RankTestTest, NormalQuantiles) {
  EXPECT_NEAR(NormalQuantile(0.5), 0, 1e-12);
  EXPECT_NEAR(NormalQuantile(0.8), 0.8416212335729143, 1e-12);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963984540054, 1e-12);
  EXPECT_NEAR(NormalQuantile(0.9975), 2.807033768343811, 1e-12);
  EXPECT_NEAR(NormalQuantile(1e-6), -4.753424308822899, 1e-12);
}

}  // namespace
}  // namespace lockstep
