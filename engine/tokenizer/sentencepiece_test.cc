#include "engine/tokenizer/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "caches/error.h"
#include "engine/tokenizer/test_vocabulary.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

int32_t ByteId(int byte) { return kTestFirstByte + byte; }

TEST(SentencePiece, PutsASpaceBeforeTheText) {
  VocabularySpec spec = SentencePieceSpec();
  const int32_t a = spec.Add("a");
  EXPECT_EQ(spec.Load()->Encode("a"), Ids({kTestSpace, a}));
  EXPECT_EQ(spec.Load()->Encode(" a"), Ids({kTestSpace, kTestSpace, a}));
  EXPECT_EQ(spec.Load()->Encode(""), Ids({}));
  EXPECT_EQ(spec.Load()->EncodePrompt("a"), Ids({kTestBos, kTestSpace, a}));
  spec.flags["add_space_prefix"] = true;
  EXPECT_EQ(spec.Load()->Encode("a"), Ids({kTestSpace, a}));
  spec.flags["add_space_prefix"] = false;
  EXPECT_EQ(spec.Load()->Encode("a"), Ids({a}));
  EXPECT_EQ(spec.Load()->Encode(" a"), Ids({kTestSpace, a}));
}

TEST(SentencePiece, MergesTheHighestScoreThenTheLeftmost) {
  VocabularySpec spec = SentencePieceSpec();
  spec.flags["add_space_prefix"] = false;
  const int32_t a = spec.Add("a"), c = spec.Add("c");
  spec.Add("b");
  const int32_t ab = spec.Add("ab", TokenKind::kNormal, -2);
  const int32_t bc = spec.Add("bc", TokenKind::kNormal, -1);
  EXPECT_EQ(spec.Load()->Encode("abc"), Ids({a, bc}));
  spec.scores->at(static_cast<size_t>(bc)) = -2;
  EXPECT_EQ(spec.Load()->Encode("abc"), Ids({ab, c}));
  spec.scores->at(static_cast<size_t>(bc)) = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(spec.Load()->Encode("abc"), Ids({ab, c}));
  // A token that no pair of tokens spells is out of reach.
  const int32_t whole = spec.Add("xyz", TokenKind::kNormal, 100);
  EXPECT_THAT(spec.Load()->Encode("xyz"), testing::Not(testing::Contains(whole)));
}

TEST(SentencePiece, SpellsASpaceAsItsMark) {
  VocabularySpec spec = SentencePieceSpec();
  const int32_t word = spec.Add("\u2581a", TokenKind::kNormal, -1);
  spec.Add("a");
  spec.Add(" b", TokenKind::kNormal, 5);  // spelled so, it never matches
  spec.Add("b");
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->Encode("a a\u2581a"), Ids({word, word, word}));
  EXPECT_EQ(tokenizer->Decode(Ids({word, word})), "a a");
  EXPECT_EQ(tokenizer->Piece(word), " a");
  EXPECT_EQ(tokenizer->Encode("b").size(), 2u);
}

TEST(SentencePiece, FallsBackToBytesThenToUnknown) {
  VocabularySpec spec = SentencePieceSpec();
  spec.flags["add_space_prefix"] = false;
  EXPECT_EQ(spec.Load()->Encode("\u00E9\n"), Ids({ByteId(0xc3), ByteId(0xa9), ByteId('\n')}));
  EXPECT_EQ(spec.Load()->Encode("\xff\xe4\xbd"), Ids({ByteId(0xff), ByteId(0xe4), ByteId(0xbd)}));

  // Without the token of one byte, no byte of a symbol is encoded alone.
  spec.types->at(static_cast<size_t>(ByteId(0xa9))) = static_cast<int32_t>(TokenKind::kControl);
  EXPECT_EQ(spec.Load()->Encode("\u00E9\u00E8"), Ids({0, ByteId(0xc3), ByteId(0xa8)}));
  EXPECT_EQ(spec.Load()->Decode(Ids({0})), "\uFFFD");

  spec.types->at(0) = static_cast<int32_t>(TokenKind::kControl);  // no unknown token either
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->Encode("\u00E8").size(), 2u);
  try {
    tokenizer->Encode("\u00E9");
    FAIL() << "text was dropped";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("\\xc3\\xa9"));
  }
}

TEST(SentencePiece, NoTextForgesAControlOrByteToken) {
  VocabularySpec spec = SentencePieceSpec();
  spec.flags["add_space_prefix"] = false;
  for (const char* part : {"<", "s", ">", "<s", "0x", "<0x", "4", "1", "41", "41>", "x", "0"}) {
    spec.Add(part, TokenKind::kNormal, -1);
  }
  const auto tokenizer = spec.Load();
  for (const char* text : {"<s>", "</s>", "<unk>", "<0x41>"}) {
    const Ids ids = tokenizer->Encode(text);
    EXPECT_THAT(ids, testing::Not(testing::Contains(testing::AnyOf(0, 1, 2, ByteId(0x41)))));
    EXPECT_EQ(tokenizer->Decode(ids), text);
  }
}

TEST(SentencePiece, UnusedTokensTakePart) {
  VocabularySpec spec = SentencePieceSpec();
  const int32_t unused = spec.Add("\u2581a", TokenKind::kUnused);
  spec.Add("a");
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->Encode("a"), Ids({unused}));
  EXPECT_EQ(tokenizer->Decode(Ids({unused})), "a");
}

TEST(SentencePiece, EachStretchAfterAUserDefinedTokenGetsASpaceOfItsOwn) {
  VocabularySpec spec = SentencePieceSpec();
  const int32_t user = spec.Add("</u>", TokenKind::kUserDefined);
  const int32_t spaced = spec.Add(" [u]", TokenKind::kUserDefined);
  const int32_t a = spec.Add("a");
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->Encode("a</u>a"), Ids({kTestSpace, a, user, kTestSpace, a}));
  EXPECT_EQ(tokenizer->Encode("</u></u>"), Ids({user, user}));
  for (const char* text : {"a</u>a", "a</u> a", "</u>", " </u> ", " [u] [u]a", "a [u]  [u] "}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
  EXPECT_EQ(tokenizer->Piece(spaced), " [u]");
}

TEST(SentencePiece, DecodingTakesAwayOnlyTheEncodersSpace) {
  VocabularySpec spec = SentencePieceSpec();
  const int32_t a = spec.Add("a");
  const auto tokenizer = spec.Load();
  EXPECT_EQ(tokenizer->Decode(Ids({})), "");
  EXPECT_EQ(tokenizer->Decode(Ids({kTestSpace})), "");
  EXPECT_EQ(tokenizer->Decode(Ids({a, kTestSpace})), "a ");
  EXPECT_EQ(tokenizer->Decode(Ids({kTestSpace, kTestSpace})), " ");
  EXPECT_EQ(tokenizer->Decode(Ids({kTestBos, kTestSpace, a, kTestEos})), "a");
  EXPECT_EQ(tokenizer->Decode(Ids({kTestBos, kTestSpace, a, kTestBos, kTestSpace, a})), "aa");
  spec.flags["add_space_prefix"] = false;
  EXPECT_EQ(spec.Load()->Decode(Ids({kTestSpace, a})), " a");
}

TEST(SentencePiece, AbsentSpecialIdsHaveTheirUsualPlacesOnlyWhenTheKindAgrees) {
  VocabularySpec spec = SentencePieceSpec();
  EXPECT_EQ(spec.Load()->bos(), kTestBos);
  EXPECT_EQ(spec.Load()->eos(), kTestEos);
  EXPECT_TRUE(spec.Load()->add_bos());
  spec.types->at(kTestBos) = static_cast<int32_t>(TokenKind::kNormal);
  spec.types->at(kTestEos) = static_cast<int32_t>(TokenKind::kUserDefined);
  EXPECT_EQ(spec.Load()->bos(), std::nullopt);
  EXPECT_EQ(spec.Load()->eos(), std::nullopt);
  EXPECT_FALSE(spec.Load()->add_bos());

  VocabularySpec tiny;
  tiny.model = "llama";
  tiny.scores = std::vector<float>();
  tiny.Add("a");
  EXPECT_EQ(tiny.Load()->bos(), std::nullopt);
}

// A vocabulary of every kind of overlap, in which nothing is unknown.
VocabularySpec RandomSpec(Random& random) {
  VocabularySpec spec = SentencePieceSpec();
  std::vector<std::string> parts = {"\u2581", "a", "b", "\u00E9"};
  for (const char* part : {"a", "b", "\u00E9"}) spec.Add(part);
  for (int i = 0; i < 30; ++i) {
    const uint32_t count = static_cast<uint32_t>(parts.size());
    const std::string token = parts[random.Below(count)] + parts[random.Below(count)];
    if (std::count(parts.begin(), parts.end(), token) > 0) continue;
    parts.push_back(token);
    spec.Add(token, TokenKind::kNormal, -static_cast<float>(random.Below(8)));
  }
  return spec;
}

TEST(SentencePiece, AnyTextAndAnyBytesReadBack) {
  Random random(6);
  for (int round = 0; round < 100; ++round) {
    VocabularySpec spec = RandomSpec(random);
    spec.Add("a?", TokenKind::kUserDefined);
    spec.flags["add_space_prefix"] = round % 2 == 0;
    const auto tokenizer = spec.Load();
    for (int i = 0; i < 20; ++i) {
      const std::string text = i % 2 == 0 ? RandomBytes(random, random.Below(40))
                                          : RandomText(random, random.Below(40), U"  aabb\u00E9?");
      if (text.find("\u2581") != std::string::npos) continue;
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text) << "round " << round;
    }
  }
}

// One unbroken text of a million symbols: n log n, where n * n would not end.
TEST(SentencePiece, LongTexts) {
  VocabularySpec spec = SentencePieceSpec();
  spec.Add("a");
  for (const std::string unit : {"a", "\u2581"}) {
    spec.Add(unit + unit, TokenKind::kNormal, -1);
    spec.Add(unit + unit + unit + unit, TokenKind::kNormal, -2);
  }
  const auto tokenizer = spec.Load();
  Random random(7);
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += static_cast<char>('a' + random.Below(26));
  for (const std::string& text :
       {std::string(1'000'000, 'a'), std::string(1'000'000, ' '), words}) {
    const std::vector<int32_t> ids = tokenizer->Encode(text);
    ASSERT_TRUE(tokenizer->Decode(ids) == text) << text[0];
    EXPECT_LE(ids.size(), text == words ? words.size() + 1 : 250'002u);
  }
}

}  // namespace
}  // namespace lockstep
