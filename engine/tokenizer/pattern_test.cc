#include "engine/tokenizer/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "caches/error.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

std::vector<size_t> Ends(const std::string& regex, const std::string& text, size_t offset = 0) {
  std::vector<size_t> ends;
  Pattern(regex).Split(text, offset, &ends);
  return ends;
}

TEST(Pattern, CutsAtMatchesAndBetweenThem) {
  EXPECT_THAT(Ends("[0-9]+", "a12bc3"), ElementsAre(1, 3, 5, 6));
  EXPECT_THAT(Ends("[0-9]+", "12a"), ElementsAre(2, 3));
  EXPECT_THAT(Ends("[0-9]", "12"), ElementsAre(1, 2));
  EXPECT_THAT(Ends("[0-9]+", "abc", 10), ElementsAre(13));
  EXPECT_THAT(Ends("[0-9]+", ""), ElementsAre());
}

TEST(Pattern, ReadsUtf8AndItsProperties) {
  EXPECT_THAT(Ends("\\p{L}+", "\u00E9\u4F60!\u0417"), ElementsAre(5, 6, 8));
  EXPECT_THAT(Ends(".", "\u4F60\U0001F60A"), ElementsAre(3, 7));
}

// The compiled code has 32 KiB of stack, and this group needs some for each repetition.
TEST(Pattern, ALongMatchFallsBackToTheInterpreter) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "ab";
  EXPECT_THAT(Ends("(?:a|b)+c", text + "c"), ElementsAre(text.size() + 1));
}

TEST(Pattern, AnExplosiveMatchIsAnErrorAndNotAMissingPart) {
  const std::string text = std::string(60, 'a') + "!d";
  try {
    Ends("(?:a+)+[bc]d", text);
    FAIL() << "2^60 ways were tried";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("match limit"));
  }
}

TEST(PatternDeathTest, ABrokenOrEmptyPatternIsABug) {
  EXPECT_DEATH(Pattern("(a"), "parenthes");
  EXPECT_DEATH(Ends("a*", "b"), "matched \\[0, 0\\)");
}

}  // namespace
}  // namespace lockstep
