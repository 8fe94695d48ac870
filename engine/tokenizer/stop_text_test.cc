#include <gtest/gtest.h>

#include "engine/tokenizer.h"

namespace lockstep {
namespace {

TEST(StopTextTest, TextEndsBeforeTheFirstStop) {
  StopText text({"END", "</s>"});
  EXPECT_EQ(text.Push("one two </s> END"), "one two ");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.Push("more"), "");
  EXPECT_EQ(text.Flush(), "");
  EXPECT_EQ(text.Push("again EN"), "again ") << "as new";
  EXPECT_FALSE(text.stopped());
  EXPECT_EQ(text.Flush(), "EN") << "it was none";
}

// Wherever the text is cut, the same is shown.
TEST(StopTextTest, CutsDoNotMatter) {
  const std::string whole = "aab aaab ab aabaaac tail";
  for (const std::string stop : {"aaac", "aaab", "ab a", "x", "b", "aa", "tail"}) {
    StopText once({stop});
    std::string expected = once.Push(whole);
    expected += once.Flush();
    EXPECT_EQ(expected, whole.substr(0, whole.find(stop))) << stop;
    for (size_t first = 0; first <= whole.size(); ++first) {
      for (size_t second = first; second <= whole.size(); ++second) {
        StopText cut({stop, "never"});
        std::string shown = cut.Push(whole.substr(0, first));
        shown += cut.Push(whole.substr(first, second - first));
        shown += cut.Push(whole.substr(second));
        ASSERT_EQ(cut.stopped(), whole.find(stop) != whole.npos);
        shown += cut.Flush();
        ASSERT_EQ(shown, expected) << stop << " at " << first << ", " << second;
      }
    }
  }
}

TEST(StopTextTest, WithoutStopsAllTextPasses) {
  StopText text({});
  EXPECT_EQ(text.Push("all"), "all");
  StopText empty({""});
  EXPECT_EQ(empty.Push("all"), "all");
  EXPECT_FALSE(empty.stopped());
}

}  // namespace
}  // namespace lockstep
