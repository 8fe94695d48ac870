#include "properties/position_classes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace lockstep {
namespace {

// Names of the classes that the positions belong to: length 5, max_length 12, blocks of 4,
// window 3.
std::set<std::string> ClassesOf(const std::vector<int32_t>& positions) {
  PositionClassCounts counts = {};
  CountPositionClasses(positions, {5, 12, 4, 3}, &counts);
  std::set<std::string> names;
  for (size_t i = 0; i < kPositionClasses; ++i) {
    if (counts[i] > 0) names.emplace(PositionClassName(static_cast<PositionClass>(i)));
  }
  return names;
}

using Names = std::set<std::string>;

TEST(PositionClassesTest, RunsAroundTheLength) {
  EXPECT_EQ(ClassesOf({}), (Names{"empty"}));
  EXPECT_EQ(ClassesOf({5}), (Names{"append"}));
  EXPECT_EQ(ClassesOf({1, 2}), (Names{"rewrite", "ends_before_block"}));
  EXPECT_EQ(ClassesOf({4, 5}), (Names{"rewrite_append", "begins_at_block"}));
  EXPECT_EQ(ClassesOf({6}), (Names{"gap", "ends_before_block"}));
}

TEST(PositionClassesTest, BlocksAndTheEndOfTheCache) {
  EXPECT_EQ(ClassesOf({7, 8}), (Names{"gap", "crosses_block", "ends_past_block"}));
  EXPECT_EQ(ClassesOf({10}), (Names{"gap", "ends_before_block", "ends_before_max"}));
  EXPECT_EQ(ClassesOf({11}), (Names{"gap", "ends_at_block", "ends_at_max"}));
  EXPECT_EQ(ClassesOf({12}), (Names{"ends_past_max"}));
  EXPECT_EQ(ClassesOf({10, 11, 12}), (Names{"ends_past_max"}));
}

TEST(PositionClassesTest, WhatIsNoRun) {
  EXPECT_EQ(ClassesOf({3, 3}), (Names{"duplicate"}));
  EXPECT_EQ(ClassesOf({5, 4}), (Names{"decreasing"}));
  EXPECT_EQ(ClassesOf({1, 4, 7}), (Names{"strided"}));
  EXPECT_EQ(ClassesOf({1, 7, 4}), (Names{"decreasing", "shuffled"}));
  EXPECT_EQ(ClassesOf({INT32_MAX, INT32_MIN}),
            (Names{"decreasing", "negative", "int32_limit", "sum_overflows"}));
  EXPECT_TRUE(ClassesOf({INT32_MAX - 1, INT32_MAX}).count("sum_overflows"));
  EXPECT_TRUE(ClassesOf({INT32_MAX - 1, INT32_MAX, INT32_MIN}).count("sum_overflows"));
  EXPECT_FALSE(ClassesOf({INT32_MAX - 2, INT32_MAX - 1}).count("sum_overflows"));
  EXPECT_EQ(ClassesOf({-1}), (Names{"negative"}));
}

TEST(PositionClassesTest, LongLists) {
  EXPECT_TRUE(ClassesOf({0, 1, 2, 3}).count("longer_than_window"));
  EXPECT_FALSE(ClassesOf({0, 1, 2}).count("longer_than_window"));
  std::vector<int32_t> thirteen;
  for (int32_t p = 0; p < 13; ++p) thirteen.push_back(p);
  EXPECT_TRUE(ClassesOf(thirteen).count("longer_than_max"));
  thirteen.pop_back();
  EXPECT_FALSE(ClassesOf(thirteen).count("longer_than_max"));
}

}  // namespace
}  // namespace lockstep
