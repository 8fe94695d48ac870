#include "engine/tokenizer/utf8.h"

#include "caches/check.h"

namespace lockstep {
namespace {

// What a lead byte asks of the bytes after it. Only the second byte's range depends on the lead:
// it is what excludes overlong forms, surrogates and code points past U+10FFFF.
struct Lead {
  size_t length = 0;  // of the whole sequence; 0: no sequence begins with this byte
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xbf;
};

Lead ReadLead(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xc2) return {0};
  if (byte < 0xe0) return {2};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0};
}

}  // namespace

Utf8Unit FirstUtf8Unit(std::string_view bytes) {
  LS_CHECK(!bytes.empty(), "no bytes to read");
  const Lead lead = ReadLead(static_cast<uint8_t>(bytes[0]));
  if (lead.length == 0) return {1, Utf8Form::kBroken};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {i, Utf8Form::kCut};
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xbf;
    if (byte < low || byte > high) return {i, Utf8Form::kBroken};
  }
  return {lead.length, Utf8Form::kWhole};
}

char32_t DecodeUtf8(std::string_view sequence) {
  constexpr uint8_t kLeadBits[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};  // by length of the sequence
  LS_CHECK(!sequence.empty() && sequence.size() <= 4, "{} bytes", sequence.size());
  char32_t code_point = static_cast<uint8_t>(sequence[0]) & kLeadBits[sequence.size()];
  for (const char c : sequence.substr(1)) {
    code_point = (code_point << 6) | (static_cast<uint8_t>(c) & 0x3f);
  }
  return code_point;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  LS_CHECK(code_point <= 0x10ffff && (code_point < 0xd800 || code_point > 0xdfff),
           "U+{:04X} is no scalar value", static_cast<uint32_t>(code_point));
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3f)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xc0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xf0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace lockstep
