#include "engine/tokenizer/byte_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "caches/error.h"
#include "engine/tokenizer/test_vocabulary.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

TEST(ByteLevel, EveryByteStandsForItself) {
  const auto tokenizer = ByteLevelSpec().Load();
  EXPECT_EQ(tokenizer->Encode("a \n\u00E9"), Ids({'a', ' ', '\n', 0xc3, 0xa9}));
  EXPECT_EQ(tokenizer->Encode(""), Ids({}));
  EXPECT_EQ(tokenizer->Piece(0xc3), "\xc3");
  EXPECT_EQ(tokenizer->Decode(Ids({' ', 'a', 0xc3, 0xa9})), " a\u00E9");
}

TEST(ByteLevel, MergesByRankThenFromTheLeftAndNeverAcrossPreTokens) {
  VocabularySpec spec = ByteLevelSpec();
  const int32_t bc = spec.AddMerge("b", "c");
  const int32_t ab = spec.AddMerge("a", "b");
  const int32_t space_a = spec.AddMerge(" ", "a");
  const int32_t aa = spec.AddMerge("a", "a");
  spec.AddMerge("a", " ");
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->Encode("abc"), Ids({'a', bc}));
  EXPECT_EQ(tokenizer->Encode("ab"), Ids({ab}));
  EXPECT_EQ(tokenizer->Encode("aaa"), Ids({aa, 'a'}));
  EXPECT_EQ(tokenizer->Encode("a a"), Ids({'a', space_a}));
  EXPECT_EQ(tokenizer->Encode("b!c"), Ids({'b', '!', 'c'}));
}

TEST(ByteLevel, OfTwoEqualMergesTheFirstCounts) {
  VocabularySpec spec = ByteLevelSpec();
  const int32_t ab = spec.AddMerge("a", "b");
  spec.AddMerge("b", "c");
  spec.merges->push_back("a b");
  EXPECT_EQ(spec.Load()->Encode("abc"), Ids({ab, 'c'}));
}

TEST(ByteLevel, OnlyLlama3TakesAWholeWordWithoutMerges) {
  VocabularySpec spec = ByteLevelSpec();
  const int32_t word = spec.Add(SpellBytes(" word"));
  spec.Add("ctl", TokenKind::kControl);
  EXPECT_EQ(spec.Load()->Encode(" word"), Ids({' ', 'w', 'o', 'r', 'd'}));
  spec.pre = "llama-bpe";
  EXPECT_EQ(spec.Load()->Encode(" word"), Ids({word}));
  EXPECT_EQ(spec.Load()->Encode(" words").size(), 6u);
  EXPECT_EQ(spec.Load()->Encode("ctl"), Ids({'c', 't', 'l'}));
}

TEST(ByteLevel, MergesOfControlTokensAreLegalAndNeverDone) {
  VocabularySpec spec = ByteLevelSpec();
  spec.Add("<s", TokenKind::kUnknown);
  spec.Add("<s>", TokenKind::kControl);
  *spec.merges = {"< s", "<s >"};
  EXPECT_EQ(spec.Load()->Encode("<s>"), Ids({'<', 's', '>'}));
}

TEST(ByteLevel, UserDefinedTokensAreRawText) {
  VocabularySpec spec = ByteLevelSpec();
  const int32_t user = spec.Add("\u4F60 [x]", TokenKind::kUserDefined);
  const int32_t two_spaces = spec.Add("  ", TokenKind::kUserDefined);
  const int32_t mark = spec.Add("\u0120\u0120", TokenKind::kUserDefined);  // not two spaces
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->Encode("a\u4F60 [x]b"), Ids({'a', user, 'b'}));
  EXPECT_EQ(tokenizer->Encode("a   b"), Ids({'a', two_spaces, ' ', 'b'}));
  EXPECT_EQ(tokenizer->Decode(Ids({user, two_spaces, mark})), "\u4F60 [x]  \u0120\u0120");
}

TEST(ByteLevel, ATokenOutsideTheAlphabetStandsForItselfAndIsNeverMade) {
  VocabularySpec spec = ByteLevelSpec();
  spec.pre = "llama-bpe";
  const int32_t foreign = spec.Add("\u4F60");
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->Piece(foreign), "\u4F60");
  EXPECT_EQ(tokenizer->Encode("\u4F60"), Ids({0xe4, 0xbd, 0xa0}));
}

TEST(ByteLevel, AByteWithoutATokenIsNeverDropped) {
  VocabularySpec spec = ByteLevelSpec();
  spec.tokens->at(0xff) = "<0xFF>";
  spec.types->at(0xff) = static_cast<int32_t>(TokenKind::kByte);
  EXPECT_EQ(spec.Load()->Encode("a\xff"), Ids({'a', 0xff}));
  EXPECT_EQ(spec.Load()->Decode(Ids({'a', 0xff})), "a\xff");

  spec.types->at(0xff) = static_cast<int32_t>(TokenKind::kUnknown);
  try {
    spec.Load()->Encode("a\xff");
    FAIL() << "a byte was dropped";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'\\xff'"));
  }
  spec.ids["unknown"] = 0xff;
  EXPECT_EQ(spec.Load()->Encode("a\xff"), Ids({'a', 0xff}));
  EXPECT_EQ(spec.Load()->Decode(Ids({'a', 0xff})), "a\uFFFD");
}

TEST(ByteLevel, NoTypesMeansAllNormal) {
  VocabularySpec spec = ByteLevelSpec();
  spec.types.reset();
  EXPECT_EQ(spec.Load()->Encode("ab"), Ids({'a', 'b'}));
  EXPECT_EQ(spec.Load()->kind(0), TokenKind::kNormal);
}

TEST(ByteLevel, TheOptionNamesOrReplacesThePreTokenizer) {
  VocabularySpec spec = ByteLevelSpec();
  const int32_t one_two = spec.AddMerge("1", "2");
  EXPECT_EQ(spec.Load()->Encode("12"), Ids({one_two}));
  EXPECT_EQ(spec.Load({.pre_tokenizer = "qwen2"})->Encode("12"), Ids({'1', '2'}));
  spec.pre.reset();
  EXPECT_EQ(spec.Load({.pre_tokenizer = "gpt-2"})->Encode("12"), Ids({one_two}));
  try {
    spec.Load({.pre_tokenizer = "none"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("pre-tokenizer option: "));
  }
}

TEST(ByteLevel, AnyTextAndAnyBytesReadBack) {
  Random random(8);
  for (const char* pre : {"default", "gpt-2", "llama-bpe", "qwen2", "smollm"}) {
    VocabularySpec spec = ByteLevelSpec();
    spec.pre = pre;
    std::vector<std::string> parts = {" ", "a", "1", "\xc3", "\xa9", "\xe4", "\xbd"};
    for (int i = 0; i < 60; ++i) {
      const uint32_t count = static_cast<uint32_t>(parts.size());
      const std::string left = parts[random.Below(count)];
      const std::string right = parts[random.Below(count)];
      if (std::count(parts.begin(), parts.end(), left + right) > 0) continue;
      parts.push_back(left + right);
      spec.AddMerge(left, right);
    }
    spec.Add("a?1", TokenKind::kUserDefined);
    const auto tokenizer = spec.Load();
    for (int round = 0; round < 500; ++round) {
      const std::string text =
          round % 2 == 0 ? RandomBytes(random, random.Below(60))
                         : RandomText(random, random.Below(40), U"  aa11\u00E9\u4F60\n'?");
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text) << pre << " round " << round;
    }
  }
}

// One pre-token of a million bytes: n log n, where n * n would not end.
TEST(ByteLevel, LongWords) {
  VocabularySpec spec = ByteLevelSpec();
  for (const std::string unit : {"a", " "}) {
    spec.AddMerge(unit, unit);
    spec.AddMerge(unit + unit, unit + unit);
  }
  const auto tokenizer = spec.Load();
  for (const char unit : {'a', ' '}) {
    const std::string text(1'000'000, unit);
    const Ids ids = tokenizer->Encode(text);
    EXPECT_EQ(ids.size(), 250'000u);
    EXPECT_TRUE(tokenizer->Decode(ids) == text) << unit;
  }
}

// Cutting alone, by every rule, where it has to look far ahead or back.
TEST(ByteLevel, LongTexts) {
  Random random(9);
  std::string letters;
  for (int i = 0; i < 100'000; ++i) letters += static_cast<char>('a' + random.Below(26));
  const std::string spaces(300'000, ' ');
  for (const char* pre : {"default", "gpt-2", "llama-bpe", "qwen2", "smollm"}) {
    VocabularySpec spec = ByteLevelSpec();
    spec.pre = pre;
    const auto tokenizer = spec.Load();
    for (const std::string& text : {letters, spaces, spaces + "a", std::string(300'000, '!'),
                                    std::string(300'000, '7'), std::string(300'000, '\n')}) {
      ASSERT_TRUE(tokenizer->Decode(tokenizer->Encode(text)) == text) << pre << ' ' << text[0];
    }
  }
}

}  // namespace
}  // namespace lockstep
