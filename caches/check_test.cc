#include "caches/check.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep {
namespace {

TEST(CheckDeathTest, AFailedCheckSaysWhereAndWhatAndAborts) {
  int evaluated = 0;
  LS_CHECK(++evaluated == 1, "never formatted {}", evaluated);
  EXPECT_EQ(evaluated, 1);
  EXPECT_EXIT(LS_CHECK(evaluated == 2, "value {}", evaluated), testing::KilledBySignal(SIGABRT),
              "check_test.cc:[0-9]+: internal check failed: evaluated == 2: value 1");
}

}  // namespace
}  // namespace lockstep
