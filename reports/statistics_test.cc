#include "reports/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

TEST(StatisticsTest, QuantilesAreLinearBetweenOrderStatistics) {
  const std::vector<double> values = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(Quantile(values, 0), 10);
  EXPECT_DOUBLE_EQ(Quantile(values, 1), 40);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.5), 25);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.25), 17.5);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.9), 37);
}

TEST(StatisticsTest, SummaryOfOneAndOfOddlyMany) {
  const Summary one = Summarize(std::vector<double>{3});
  EXPECT_EQ(one.count, 1);
  EXPECT_DOUBLE_EQ(one.low, 3);
  EXPECT_DOUBLE_EQ(one.median, 3);
  EXPECT_DOUBLE_EQ(one.high, 3);
  const Summary five = Summarize(std::vector<double>{5, 1, 4, 2, 1000});  // the mean would be 202
  EXPECT_DOUBLE_EQ(five.low, 2);
  EXPECT_DOUBLE_EQ(five.median, 4);
  EXPECT_DOUBLE_EQ(five.high, 5);
}

TEST(StatisticsTest, RatioIsThatOfPairsAndNotOfMedians) {
  // Each pair has ratio 2; drift within the run cancels, which a ratio of medians also shows, but
  // it does not when only one side is sorted differently.
  const std::vector<double> baseline = {1, 2, 3, 4, 5};
  const std::vector<double> twice = {2, 4, 6, 8, 10};
  const RatioEstimate exact = EstimateRatio(twice, baseline, Random(1));
  EXPECT_DOUBLE_EQ(exact.median, 2);
  EXPECT_DOUBLE_EQ(exact.low, 2);
  EXPECT_DOUBLE_EQ(exact.high, 2);
  const std::vector<double> mixed = {10, 2, 6, 2, 2};  // ratios 10, 1, 2, 0.5, 0.4
  EXPECT_DOUBLE_EQ(EstimateRatio(mixed, baseline, Random(1)).median, 1);
}

TEST(StatisticsTest, IntervalIsRepeatableAndHoldsTheMedian) {
  Random random(7);
  std::vector<double> subject, baseline;
  for (int i = 0; i < 25; ++i) {
    subject.push_back(random.Between(900, 1100));
    baseline.push_back(random.Between(450, 550));
  }
  const RatioEstimate a = EstimateRatio(subject, baseline, Random(3));
  const RatioEstimate b = EstimateRatio(subject, baseline, Random(3));
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_LT(a.low, a.median);
  EXPECT_GT(a.high, a.median);
}

// Of many runs whose true ratio is 2, about 95 % of the intervals have to hold it.
TEST(StatisticsTest, IntervalHoldsTheTruthAboutAsOftenAsItSays) {
  Random random(11);
  constexpr int kRuns = 300;
  int held = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> subject, baseline;
    for (int i = 0; i < 21; ++i) {
      baseline.push_back(random.Between(800, 1200));
      subject.push_back(2 * baseline.back() * (1 + 0.001 * random.Between(-200, 200)));
    }
    const RatioEstimate estimate =
        EstimateRatio(subject, baseline, random.Split(static_cast<uint64_t>(run)), 300);
    if (estimate.low <= 2 && 2 <= estimate.high) ++held;
  }
  EXPECT_GE(held, kRuns * 90 / 100);
  EXPECT_LE(held, kRuns * 99 / 100);
}

}  // namespace
}  // namespace lockstep
