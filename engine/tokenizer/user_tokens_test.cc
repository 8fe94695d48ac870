#include "engine/tokenizer/user_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "caches/random.h"
#include "engine/tokenizer/merge.h"

namespace lockstep {
namespace {

using Runs = std::vector<std::pair<std::string, int32_t>>;

Vocabulary UserDefined(const std::vector<std::string>& tokens) {
  Vocabulary vocabulary;
  vocabulary.tokens = tokens;
  vocabulary.kinds.assign(tokens.size(), TokenKind::kUserDefined);
  return vocabulary;
}

Runs Split(const Vocabulary& vocabulary, const std::string& text) {
  Runs runs;
  for (const UserTokens::Run& run : UserTokens(vocabulary).Split(text)) {
    runs.emplace_back(run.text, run.token);
  }
  return runs;
}

TEST(UserTokens, AreFoundAnywhere) {
  const Vocabulary vocabulary = UserDefined({"<a>"});
  EXPECT_EQ(Split(vocabulary, ""), Runs({}));
  EXPECT_EQ(Split(vocabulary, "<a"), Runs({{"<a", kNoToken}}));
  EXPECT_EQ(Split(vocabulary, "<a>"), Runs({{"<a>", 0}}));
  EXPECT_EQ(Split(vocabulary, "x<a><a>y"),
            Runs({{"x", kNoToken}, {"<a>", 0}, {"<a>", 0}, {"y", kNoToken}}));
  EXPECT_EQ(Split(vocabulary, "<<a>"), Runs({{"<", kNoToken}, {"<a>", 0}}));
}

TEST(UserTokens, OnlyThatKindAndNeverEmptyOnes) {
  Vocabulary vocabulary = UserDefined({"a", "b", "c", "d", "e", "f", ""});
  vocabulary.kinds = {TokenKind::kNormal,     TokenKind::kUnknown,     TokenKind::kControl,
                      TokenKind::kUnused,     TokenKind::kUserDefined, TokenKind::kByte,
                      TokenKind::kUserDefined};
  EXPECT_EQ(Split(vocabulary, "abcdef"), Runs({{"abcd", kNoToken}, {"e", 4}, {"f", kNoToken}}));
}

TEST(UserTokens, LongerOnesFirstThenFromTheLeft) {
  // From the left alone, "ab" would win.
  EXPECT_EQ(Split(UserDefined({"ab", "bcd"}), "abcd"), Runs({{"a", kNoToken}, {"bcd", 1}}));
  EXPECT_EQ(Split(UserDefined({"aa"}), "aaa"), Runs({{"aa", 0}, {"a", kNoToken}}));
  EXPECT_EQ(Split(UserDefined({"ba", "ab"}), "aba"), Runs({{"ab", 1}, {"a", kNoToken}}));
  EXPECT_EQ(Split(UserDefined({"a", "aa", "aaa"}), "aaaaa"), Runs({{"aaa", 2}, {"aa", 1}}));
}

// The rule in its own words, over a map of which bytes are taken.
Runs SplitSlowly(const std::vector<std::string>& tokens, const std::string& text) {
  std::vector<std::pair<size_t, int32_t>> taken(text.size(), {0, kNoToken});  // begin, token
  for (size_t length = text.size(); length > 0; --length) {
    for (size_t at = 0; at + length <= text.size(); ++at) {
      bool free = true;
      for (size_t i = at; i < at + length; ++i) free = free && taken[i].second == kNoToken;
      for (size_t id = 0; free && id < tokens.size(); ++id) {
        if (tokens[id] != text.substr(at, length)) continue;
        for (size_t i = at; i < at + length; ++i) taken[i] = {at, static_cast<int32_t>(id)};
        free = false;
      }
    }
  }
  Runs runs;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool goes_on = i > 0 && taken[i] == taken[i - 1];
    if (!goes_on) runs.emplace_back("", taken[i].second);
    runs.back().first += text[i];
  }
  return runs;
}

TEST(UserTokens, EqualTheRuleInItsOwnWords) {
  Random random(5);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::string> tokens;
    for (uint32_t i = 1 + random.Below(6); i > 0; --i) {
      std::string token;
      for (uint32_t j = 1 + random.Below(4); j > 0; --j) token += random.Below(2) == 0 ? 'a' : 'b';
      tokens.push_back(token);
    }
    std::string text;
    for (uint32_t i = random.Below(20); i > 0; --i) text += "abc"[random.Below(3)];
    ASSERT_EQ(Split(UserDefined(tokens), text), SplitSlowly(tokens, text))
        << "round " << round << ": " << text;
  }
}

}  // namespace
}  // namespace lockstep
