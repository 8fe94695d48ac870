#include "ci/mutation/explained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::mutation {
namespace {

using testing::HasSubstr;

Fault Expected() { return {.name = "a-fault", .stage = "key_rope", .layer = "0", .cause = "mask"}; }

std::string Explanation(const std::string& fact, const std::string& cause) {
  return R"({"holds": false, "first": {"fact": ")" + fact +
         R"(", "layer": 0}, "cause": {"class": ")" + cause + R"(", "evidence": "as seen"}})";
}

std::vector<std::string> Output(const std::string& explanations) {
  return {"case x: its model is not here\n{\"explanations\": [" + explanations + "]}\n"};
}

TEST(ExplainedTest, WhatMostGoldensNameCounts) {
  const ExplainedFault r =
      JudgeExplanations(Expected(), Output(Explanation("key_rope", "mask") + ", " +
                                           Explanation("key_rope@3:16", "unknown") + ", " +
                                           Explanation("attention", "mask")));
  EXPECT_EQ(r.problem, "");
  EXPECT_EQ(r.goldens, 3);
  EXPECT_EQ(r.place, "layer 0, key_rope");
  EXPECT_EQ(r.cause, "mask");
  EXPECT_EQ(r.evidence, "as seen");
  EXPECT_TRUE(r.right_place);
  EXPECT_TRUE(r.right_cause);
}

TEST(ExplainedTest, WhatIsWrongIsSaidSo) {
  const ExplainedFault r =
      JudgeExplanations(Expected(), Output(Explanation("attention", "unknown")));
  EXPECT_FALSE(r.right_place);
  EXPECT_FALSE(r.right_cause);
  EXPECT_THAT(ExplainedLine(r), HasSubstr("WRONG  WRONG  a-fault: layer 0, attention, unknown"));
  EXPECT_EQ(ExplainedTable({r}).rows[0][2], "layer 0, key_rope, said layer 0, attention");
  EXPECT_EQ(ExplainedScore({r}), "1 faults explained: the place is right for 0, the cause for 0\n");
}

TEST(ExplainedTest, NoExplanationIsNeverRight) {
  for (const char* output : {"", "Segmentation fault", "{\"holds\": ", "{\"explanations\": []}"}) {
    const ExplainedFault r = JudgeExplanations(Expected(), std::vector<std::string>{output});
    EXPECT_NE(r.problem, "") << output;
    EXPECT_FALSE(r.right_place);
    EXPECT_FALSE(r.right_cause);
  }
}

TEST(ExplainedTest, CallsThatAFaultEndsDoNotHideTheOthers) {
  std::vector<std::string> outputs = Output(Explanation("key_rope", "mask"));
  outputs.insert(outputs.begin(), "internal check failed");
  EXPECT_EQ(JudgeExplanations(Expected(), outputs).problem, "");
  EXPECT_TRUE(JudgeExplanations(Expected(), outputs).right_cause);
}

}  // namespace
}  // namespace lockstep::mutation
