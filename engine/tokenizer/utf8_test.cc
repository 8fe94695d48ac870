#include "engine/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "caches/random.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer/test_vocabulary.h"

namespace lockstep {
namespace {

bool IsScalar(char32_t code_point) { return code_point < 0xd800 || code_point > 0xdfff; }

// Every proper beginning of a well-formed sequence, from the sequences themselves.
const std::set<std::string>& Beginnings() {
  static const std::set<std::string> beginnings = [] {
    std::set<std::string> found;
    std::string last;
    for (char32_t code_point = 0x80; code_point <= 0x10ffff; ++code_point) {
      if (!IsScalar(code_point)) continue;
      std::string sequence;
      AppendUtf8(code_point, &sequence);
      sequence.pop_back();
      if (sequence == last) continue;
      last = sequence;
      for (size_t size = 1; size <= sequence.size(); ++size) found.insert(sequence.substr(0, size));
    }
    return found;
  }();
  return beginnings;
}

// By the definition of a maximal subpart: the longest beginning, or one byte.
Utf8Unit ExpectedUnit(const std::string& bytes) {
  if (static_cast<uint8_t>(bytes[0]) < 0x80) return {1, Utf8Form::kWhole};
  size_t length = 0;
  while (length < bytes.size() && Beginnings().contains(bytes.substr(0, length + 1))) ++length;
  if (length == 0) return {1, Utf8Form::kBroken};
  if (length == bytes.size()) return {length, Utf8Form::kCut};
  const bool continued = (static_cast<uint8_t>(bytes[length]) & 0xc0) == 0x80;
  const size_t wanted = static_cast<uint8_t>(bytes[0]) < 0xe0   ? 2
                        : static_cast<uint8_t>(bytes[0]) < 0xf0 ? 3
                                                                : 4;
  if (continued && length + 1 == wanted) return {wanted, Utf8Form::kWhole};
  return {length, Utf8Form::kBroken};
}

void ExpectUnit(const std::string& bytes) {
  const Utf8Unit expected = ExpectedUnit(bytes);
  const Utf8Unit unit = FirstUtf8Unit(bytes);
  ASSERT_EQ(unit.length, expected.length) << testing::PrintToString(bytes);
  ASSERT_EQ(unit.form, expected.form) << testing::PrintToString(bytes);
}

TEST(Utf8, EveryScalarValueReadsBack) {
  for (char32_t code_point = 0; code_point <= 0x10ffff; ++code_point) {
    if (!IsScalar(code_point)) continue;
    std::string sequence;
    AppendUtf8(code_point, &sequence);
    const Utf8Unit unit = FirstUtf8Unit(sequence + "x");
    ASSERT_EQ(unit.form, Utf8Form::kWhole) << static_cast<uint32_t>(code_point);
    ASSERT_EQ(unit.length, sequence.size()) << static_cast<uint32_t>(code_point);
    ASSERT_EQ(DecodeUtf8(sequence), code_point);
  }
}

TEST(Utf8, EveryPairOfBytesAndEveryThirdByte) {
  for (uint32_t pair = 0; pair < 0x10000; ++pair) {
    const std::string bytes = {static_cast<char>(pair >> 8), static_cast<char>(pair)};
    ExpectUnit(bytes.substr(0, 1));
    ExpectUnit(bytes);
    if (static_cast<uint8_t>(bytes[0]) < 0xc0) continue;
    for (const int third : {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xf4, 0xff}) {
      ExpectUnit(bytes + static_cast<char>(third));
      ExpectUnit(bytes + static_cast<char>(third) + '\x80');
      ExpectUnit(bytes + static_cast<char>(third) + 'x');
    }
  }
}

// What Unicode's own tables 3-8 to 3-11 show ("U+FFFD Substitution of Maximal Subparts").
TEST(Utf8Stream, ReplacesMaximalSubparts) {
  const std::string r = "\uFFFD";
  const struct {
    std::string bytes;
    std::string text;
  } cases[] = {
      {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", r + r + r + r + r + "A" + r + r + "B"},
      {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", r + r + r + r + "A"},
  };
  for (const auto& c : cases) {
    Utf8Stream stream;
    EXPECT_EQ(stream.Push(c.bytes), c.text);
    EXPECT_EQ(stream.Flush(), "");
  }
}

TEST(Utf8Stream, HoldsBackWhatMayStillBecomeASequence) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xf0\x9f"), "a");
  EXPECT_EQ(stream.Push("\x98"), "");
  EXPECT_EQ(stream.Push(""), "");
  EXPECT_EQ(stream.Push("\x8a!"), "\U0001F60A!");
  EXPECT_EQ(stream.Push("\xe4\xbd"), "");
  EXPECT_EQ(stream.Flush(), "\uFFFD");
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(stream.Push("\xa0"), "\uFFFD");  // does not complete what was flushed
}

TEST(Utf8Stream, ADeadBeginningComesOutAtOnceAndTheNextByteIsKept) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xe4"), "");
  EXPECT_EQ(stream.Push("\xe4"), "\uFFFD");
  EXPECT_EQ(stream.Push("\xbd\xa0"), "\u4F60");
}

TEST(Utf8Stream, TextDoesNotDependOnTheCuts) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = RandomText(random, 6, U"a\u00E9\u4F60\U0001F60A") + RandomBytes(random, 4);
    bytes.erase(random.Below(static_cast<uint32_t>(bytes.size())), 1 + random.Below(3));
    Utf8Stream whole;
    std::string expected = whole.Push(bytes);
    expected += whole.Flush();
    Utf8Stream stream;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + random.Below(3);
      text += stream.Push(std::string_view(bytes).substr(at, size));
      at += size;
    }
    text += stream.Flush();
    ASSERT_EQ(text, expected) << "round " << round << ": " << testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace lockstep
