#include "engine/tokenizer/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lockstep {
namespace {

std::string Spelled(int byte) { return SpellBytes(std::string(1, static_cast<char>(byte))); }

TEST(ByteAlphabet, HasTheSpellingsOfPublishedVocabularies) {
  EXPECT_EQ(Spelled(0x00), "\u0100");
  EXPECT_EQ(Spelled('\n'), "\u010A");
  EXPECT_EQ(Spelled(' '), "\u0120");
  EXPECT_EQ(Spelled('!'), "!");
  EXPECT_EQ(Spelled('~'), "~");
  EXPECT_EQ(Spelled(0x7f), "\u0121");
  EXPECT_EQ(Spelled(0xa0), "\u0142");
  EXPECT_EQ(Spelled(0xa1), "\u00A1");
  EXPECT_EQ(Spelled(0xad), "\u0143");
  EXPECT_EQ(Spelled(0xff), "\u00FF");
}

TEST(ByteAlphabet, EveryByteReadsBack) {
  std::set<std::string> spellings;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    spellings.insert(Spelled(byte));
    all.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(spellings.size(), 256u);
  std::string bytes = "before ";
  EXPECT_TRUE(AppendUnspelled(SpellBytes(all), &bytes));
  EXPECT_EQ(bytes, "before " + all);
}

TEST(ByteAlphabet, WhatStandsForNoByteIsRefusedAndAppendsNothing) {
  for (const char* spelled : {"ab c", "ab\u00A0", "ab\u00AD", "ab\u0144", "ab\u4F60", "ab\xff",
                              "ab\xc4", "ab\x7f", "ab\n"}) {
    std::string bytes = "kept";
    EXPECT_FALSE(AppendUnspelled(spelled, &bytes)) << spelled;
    EXPECT_EQ(bytes, "kept");
  }
}

}  // namespace
}  // namespace lockstep
