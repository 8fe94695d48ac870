#include "golden/compare_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

float Next(float value, int steps) {
  for (int i = 0; i < steps; ++i) value = std::nextafter(value, 10.0f);
  return value;
}

TEST(UlpHistogramTest, DistancesFallIntoDoublingBuckets) {
  UlpHistogram histogram;
  for (int ulps = 0; ulps <= 9; ++ulps) histogram.Add(1.0f, Next(1.0f, ulps));
  EXPECT_EQ(histogram.counts[0], 1);
  EXPECT_EQ(histogram.counts[1], 1);
  EXPECT_EQ(histogram.counts[2], 1);
  EXPECT_EQ(histogram.counts[3], 2);  // 3, 4
  EXPECT_EQ(histogram.counts[4], 4);  // 5 to 8
  EXPECT_EQ(histogram.counts[5], 1);  // 9
  histogram.Add(1.0f, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(histogram.nan, 1);
  histogram.Add(-std::numeric_limits<float>::max(), std::numeric_limits<float>::max());
  EXPECT_EQ(histogram.counts[UlpHistogram::kBuckets - 1], 1);
}

TEST(UlpHistogramTest, BucketsAreNamedByTheirDistances) {
  EXPECT_EQ(UlpHistogram::BucketName(0), "0");
  EXPECT_EQ(UlpHistogram::BucketName(2), "2");
  EXPECT_EQ(UlpHistogram::BucketName(3), "3-4");
  EXPECT_EQ(UlpHistogram::BucketName(4), "5-8");
}

TEST(CompareValuesTest, NamesRowsAndElements) {
  const std::vector<float> before = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> now = before;
  now[4] = 5.5f;
  now[5] = 6.5f;
  const ValueDifference difference = CompareValues(before, now, 3);
  EXPECT_EQ(difference.elements, 9);
  EXPECT_EQ(difference.differing, 2);
  ASSERT_EQ(difference.rows.size(), 1u);
  EXPECT_EQ(difference.rows[0].row, 1);
  EXPECT_EQ(difference.rows[0].differing, 2);
  EXPECT_EQ(difference.rows[0].first, 1);
  EXPECT_EQ(difference.rows[0].last, 2);
  EXPECT_EQ(difference.rows[0].before, 5.0f);
  EXPECT_EQ(difference.rows[0].now, 5.5f);
}

TEST(CompareValuesTest, BoundsMakeElementsEqual) {
  const std::vector<float> before = {1, 2};
  const std::vector<float> now = {1.25f, 2.25f};
  const std::vector<double> bounds = {0.25, 0.125};
  const ValueDifference difference = CompareValues(before, now, 2, bounds);
  EXPECT_EQ(difference.differing, 1);
  EXPECT_EQ(difference.rows[0].first, 1);
}

TEST(CompareValuesTest, SignsOfZeroDifferAndNansDoNot) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(CompareValues(std::vector{0.0f, nan}, std::vector{-0.0f, -nan}, 2).differing, 1);
}

}  // namespace
}  // namespace lockstep
