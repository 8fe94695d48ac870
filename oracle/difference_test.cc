#include "oracle/difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(UlpDistanceTest, CountsTheFloatsBetween) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(UlpDistance(1.0f, 1.0f), 0u);
  EXPECT_EQ(UlpDistance(1.0f, std::bit_cast<float>(0x3f800001u)), 1u);
  EXPECT_EQ(UlpDistance(std::bit_cast<float>(0x3f800001u), 1.0f), 1u);
  EXPECT_EQ(UlpDistance(-0.0f, 0.0f), 1u);
  EXPECT_EQ(UlpDistance(-kTiny, kTiny), 3u);
  EXPECT_EQ(UlpDistance(std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()),
            1u);
}

TEST(UlpDistanceTest, NanIsEqualToNanAndFarFromNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(UlpDistance(nan, std::bit_cast<float>(0xffc00001u)), 0u);
  EXPECT_EQ(UlpDistance(nan, 0.0f), std::nullopt);
  EXPECT_EQ(UlpDistance(0.0f, nan), std::nullopt);
}

TEST(FirstFloatDifferenceTest, SeesTheSignOfZeroAndTheLastElement) {
  const std::vector<float> a = {1, 2, 0.0f};
  EXPECT_EQ(FirstFloatDifference(a, a), -1);
  EXPECT_EQ(FirstFloatDifference(a, std::vector<float>{1, 2, -0.0f}), 2);
  EXPECT_EQ(FirstFloatDifference({}, {}), -1);
}

RecordingTrace TraceOf(std::vector<float> key_rows, Stage stage = Stage::kKey) {
  RecordingTrace trace;
  const std::vector<int32_t> positions = {7, 8};
  trace.OnStage({.layer = 0,
                 .stage = Stage::kAttnNorm,
                 .positions = positions,
                 .rows = std::vector<float>{1, 1, 1, 1},
                 .width = 2});
  trace.OnStage({.layer = 0, .stage = stage, .positions = positions, .rows = key_rows, .width = 2});
  return trace;
}

TEST(FirstTraceDifferenceTest, NamesStagePositionElementAndValues) {
  const RecordingTrace subject = TraceOf({1, 2, 3, 5});
  const RecordingTrace oracle = TraceOf({1, 2, 3, 4});
  const auto difference = FirstTraceDifference(subject.entries(), oracle.entries());
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->layer, 0);
  EXPECT_EQ(difference->place, "key");
  EXPECT_EQ(difference->position, 8);
  EXPECT_EQ(difference->element, 1);
  EXPECT_EQ(difference->subject, 5);
  EXPECT_EQ(difference->oracle, 4);
  EXPECT_THAT(difference->Sentence(), HasSubstr("0x40a00000 (5) against oracle 0x40800000 (4)"));
  EXPECT_FALSE(FirstTraceDifference(oracle.entries(), oracle.entries()));
}

TEST(FirstTraceDifferenceTest, AMissingOrOtherStageIsADifference) {
  const RecordingTrace oracle = TraceOf({1, 2, 3, 4});
  const RecordingTrace other = TraceOf({1, 2, 3, 4}, Stage::kValue);
  const auto renamed = FirstTraceDifference(other.entries(), oracle.entries());
  ASSERT_TRUE(renamed);
  EXPECT_EQ(renamed->place, "value");
  const auto missing = FirstTraceDifference(oracle.entries().first(1), oracle.entries());
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->place, "key");
  EXPECT_THAT(missing->detail, HasSubstr("only the oracle"));
}

}  // namespace
}  // namespace lockstep
