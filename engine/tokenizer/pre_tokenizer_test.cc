#include "engine/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "caches/error.h"
#include "caches/random.h"
#include "engine/tokenizer/test_vocabulary.h"
#include "engine/tokenizer/utf8.h"

namespace lockstep {
namespace {

using Pieces = std::vector<std::string>;

constexpr const char* kNames[] = {"default",  "gpt-2", "llama-bpe",        "llama3",
                                  "llama-v3", "qwen2", "deepseek-r1-qwen", "smollm"};

Pieces Split(const PreTokenizer& pre_tokenizer, const std::string& text) {
  Pieces pieces;
  size_t begin = 0;
  for (const size_t end : pre_tokenizer.Split(text)) {
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

Pieces Split(const std::string& name, const std::string& text) {
  return Split(PreTokenizer::Make(name, "test"), text);
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(Split("gpt-2", ""), Pieces({}));
  EXPECT_EQ(Split("gpt-2", "Hello world! Caf\u00E9 - 123 \U0001F60A"),
            Pieces({"Hello", " world", "!", " Caf\u00E9", " -", " 123", " \U0001F60A"}));
  EXPECT_EQ(Split("gpt-2", "I've 'RE you're"),
            Pieces({"I", "'ve", " '", "RE", " you", "'re"}));  // lower case only
  EXPECT_EQ(Split("gpt-2", "a   b"), Pieces({"a", "  ", " b"}));
  EXPECT_EQ(Split("gpt-2", "a \n b"), Pieces({"a", " \n", " b"}));
  EXPECT_EQ(Split("gpt-2", "a\n\nb"), Pieces({"a", "\n", "\n", "b"}));
  EXPECT_EQ(Split("gpt-2", "a  "), Pieces({"a", "  "}));
  EXPECT_EQ(Split("gpt-2", "3333333 \u0663\u00BD"), Pieces({"3333333", " \u0663\u00BD"}));
  EXPECT_EQ(Split("gpt-2", "e\u0301x"), Pieces({"e", "\u0301", "x"}));  // a mark is no letter
}

TEST(PreTokenizer, Llama3) {
  EXPECT_EQ(Split("llama-bpe", "Hello world! Caf\u00E9 - 123 \U0001F60A"),
            Pieces({"Hello", " world", "!", " Caf\u00E9", " -", " ", "123", " \U0001F60A"}));
  EXPECT_EQ(Split("llama-bpe", "I'VE she'Ll"), Pieces({"I", "'VE", " she", "'Ll"}));
  EXPECT_EQ(Split("llama-bpe", "12345678"), Pieces({"123", "456", "78"}));
  EXPECT_EQ(Split("llama-bpe", "a\r\n\r\nb"), Pieces({"a", "\r\n\r\n", "b"}));
  EXPECT_EQ(Split("llama-bpe", "!\n\nfoo"), Pieces({"!\n\n", "foo"}));
  EXPECT_EQ(Split("llama-bpe", "a  \n  b"), Pieces({"a", "  \n", " ", " b"}));
  EXPECT_EQ(Split("llama-bpe", "(ab -cd"), Pieces({"(ab", " -", "cd"}));
  // U+017F folds to s, but is no contraction.
  EXPECT_EQ(Split("llama-bpe", "x'\u017Fy"), Pieces({"x", "'\u017Fy"}));
}

TEST(PreTokenizer, Qwen2CutsEachDigit) {
  EXPECT_EQ(
      Split("qwen2", "Hello world! Caf\u00E9 - 123 \U0001F60A"),
      Pieces({"Hello", " world", "!", " Caf\u00E9", " -", " ", "1", "2", "3", " \U0001F60A"}));
  EXPECT_EQ(Split("qwen2", "a\r\n\r\nb'S"), Pieces({"a", "\r\n\r\n", "b", "'S"}));
}

TEST(PreTokenizer, SmollmCutsEachDigitAndIsLikeGpt2Otherwise) {
  EXPECT_EQ(
      Split("smollm", "Hello world! Caf\u00E9 - 123 \U0001F60A"),
      Pieces({"Hello", " world", "!", " Caf\u00E9", " -", " ", "1", "2", "3", " \U0001F60A"}));
  EXPECT_EQ(Split("smollm", "ab12c  3"), Pieces({"ab", "1", "2", "c", "  ", "3"}));
  EXPECT_EQ(Split("smollm", "I've 'RE\n\nb"), Pieces({"I", "'ve", " '", "RE", "\n", "\n", "b"}));
  EXPECT_EQ(Split("smollm", "\u0663\u00BD"), Pieces({"\u0663", "\u00BD"}));  // any number
}

TEST(PreTokenizer, DefaultTakesPunctuationFirst) {
  EXPECT_EQ(Split("default", "Hello world! Caf\u00E9 - 123 \U0001F60A"),
            Pieces({"Hello", " world", "!", " Caf\u00E9", " ", "-", " ", "123", " \U0001F60A"}));
  EXPECT_EQ(Split("default", "don't 12345!"), Pieces({"don", "'", "t", " ", "123", "45", "!"}));
  EXPECT_EQ(Split("default", "a+b<=c  d"), Pieces({"a", "+", "b", "<=", "c", " ", " d"}));
}

// Unicode White_Space and nothing else.
TEST(PreTokenizer, WhatIsSpace) {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2"}) {
    for (const char* space : {"\t", "\v", "\f", "\u0085", "\u00A0", "\u1680", "\u2003", "\u2028",
                              "\u202F", "\u205F", "\u3000"}) {
      const std::string text = std::string("!") + space + space + "1";
      EXPECT_EQ(Split(name, text), Pieces({"!", space, space, "1"})) << name;
    }
    for (const char* other : {"\u180E", "\u200B", "\uFEFF", "\x1c", "\x1f"}) {
      EXPECT_EQ(Split(name, std::string("!") + other), Pieces({std::string("!") + other})) << name;
    }
  }
}

TEST(PreTokenizer, ABadByteIsAPieceAndEndsTheTextBeforeIt) {
  EXPECT_EQ(Split("gpt-2", "ab\xffgh"), Pieces({"ab", "\xff", "gh"}));
  EXPECT_EQ(Split("gpt-2", "a  \xe4\xbd!"), Pieces({"a", "  ", "\xe4", "\xbd", "!"}));
  EXPECT_EQ(Split("gpt-2", "\x80"), Pieces({"\x80"}));
  EXPECT_EQ(Split("gpt-2", "a\xf0\x9f\x98"), Pieces({"a", "\xf0", "\x9f", "\x98"}));
}

TEST(PreTokenizer, PiecesLaidEndToEndAreTheText) {
  Random random(3);
  for (const char* name : kNames) {
    const PreTokenizer pre_tokenizer = PreTokenizer::Make(name, "test");
    for (int round = 0; round < 500; ++round) {
      const std::string text = round % 2 == 0 ? RandomBytes(random, random.Below(64))
                                              : RandomText(random, random.Below(32),
                                                           U" \n\r\ta'sre1!\u00A0\u0301\u4F60");
      std::string joined;
      for (const std::string& piece : Split(pre_tokenizer, text)) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text) << name << " round " << round;
    }
  }
}

// The published expressions, run over ASCII by another engine.
TEST(PreTokenizer, EqualsThePublishedExpressionOnAscii) {
  const std::string by_line =
      "('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\na-zA-Z0-9]?[a-zA-Z]+|DIGITS"
      "| ?[^\\sa-zA-Z0-9]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const auto with_digits = [&](const std::string& digits) {
    return std::regex_replace(by_line, std::regex("DIGITS"), digits);
  };
  const struct {
    const char* name;
    std::string regex;
  } rules[] = {
      {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?[a-zA-Z]+| ?[0-9]+| ?[^\\sa-zA-Z0-9]+|\\s+(?!\\S)|\\s+"},
      {"llama-bpe", with_digits("[0-9]{1,3}")},
      {"qwen2", with_digits("[0-9]")},
  };
  const std::string alphabet = "  \n\r\tabSTREVLm''01!-.";
  Random random(4);
  for (const auto& rule : rules) {
    const PreTokenizer pre_tokenizer = PreTokenizer::Make(rule.name, "test");
    const std::regex regex(rule.regex);
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (uint32_t i = random.Below(24); i > 0; --i) {
        text += alphabet[random.Below(static_cast<uint32_t>(alphabet.size()))];
      }
      Pieces expected;
      for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
        expected.push_back(at->str());
      }
      ASSERT_EQ(Split(pre_tokenizer, text), expected)
          << rule.name << " round " << round << ": " << testing::PrintToString(text);
    }
  }
}

// More steps than PCRE2's own limit allows one match.
TEST(PreTokenizer, ARunOfSpacesLongerThanTheEnginesOwnLimit) {
  const std::string spaces(12'000'000, ' ');
  EXPECT_EQ(PreTokenizer::Make("qwen2", "test").Split(spaces).size(), 1u);
}

TEST(PreTokenizer, AnUnknownNameIsRefusedWithTheKnownOnes) {
  for (const char* name : {"", "gpt2", "GPT-2", "llama-bpe ", "falcon"}) {
    try {
      PreTokenizer::Make(name, "here");
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().where, "here");
      EXPECT_THAT(error.parts().what, testing::HasSubstr(std::string("'") + name + "'"));
      for (const char* known : kNames) {
        EXPECT_THAT(error.parts().remedy, testing::HasSubstr(std::string("'") + known + "'"));
      }
    }
  }
}

TEST(PreTokenizer, OnlyLlama3IgnoresMergesAndAddsBos) {
  for (const char* name : kNames) {
    const PreTokenizer pre_tokenizer = PreTokenizer::Make(name, "test");
    const bool llama3 = std::string(name).starts_with("llama");
    EXPECT_EQ(pre_tokenizer.ignores_merges(), llama3) << name;
    EXPECT_EQ(pre_tokenizer.adds_bos(), llama3) << name;
  }
}

}  // namespace
}  // namespace lockstep
