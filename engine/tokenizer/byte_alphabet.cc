#include "engine/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "engine/tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr int16_t kNoByte = -1;

// Bytes that are printable in Latin-1 stand for themselves; the others take U+0100, U+0101, ... in
// increasing order.
constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
         (byte >= 0xae && byte <= 0xff);
}

struct Alphabet {
  std::array<char32_t, 256> spelling{};
  std::array<int16_t, 512> byte{};  // by code point
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = kNoByte;
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const char32_t code_point = StandsForItself(byte) ? char32_t{byte} : next++;
    alphabet.spelling[byte] = code_point;
    alphabet.byte[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

bool AppendUnspelled(std::string_view spelled, std::string* bytes) {
  const size_t before = bytes->size();
  for (std::string_view rest = spelled; !rest.empty();) {
    const Utf8Unit unit = FirstUtf8Unit(rest);
    const char32_t code_point = unit.form == Utf8Form::kWhole
                                    ? DecodeUtf8(rest.substr(0, unit.length))
                                    : char32_t{kAlphabet.byte.size()};
    const int16_t byte = code_point < kAlphabet.byte.size() ? kAlphabet.byte[code_point] : kNoByte;
    if (byte == kNoByte) {
      bytes->resize(before);
      return false;
    }
    bytes->push_back(static_cast<char>(byte));
    rest.remove_prefix(unit.length);
  }
  return true;
}

std::string SpellBytes(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) {
    AppendUtf8(kAlphabet.spelling[static_cast<uint8_t>(byte)], &spelled);
  }
  return spelled;
}

}  // namespace lockstep
