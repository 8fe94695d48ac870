// UTF-8, read one sequence at a time over bytes that may be anything.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_UTF8_H_
#define LOCKSTEP_ENGINE_TOKENIZER_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class Utf8Form : uint8_t {
  kWhole,   // a well-formed sequence (The Unicode Standard, table 3-7)
  kBroken,  // a maximal subpart of an ill-formed sequence (ibid., section 3.9): no byte that
            // follows could complete it
  kCut,     // the bytes end inside what may still become a well-formed sequence
};

struct Utf8Unit {
  size_t length = 0;  // 1 to 4 when kWhole, 1 to 3 otherwise
  Utf8Form form = Utf8Form::kWhole;
};

// What `bytes` begin with. REQUIRES: !bytes.empty().
Utf8Unit FirstUtf8Unit(std::string_view bytes);

// The code point of one well-formed sequence. REQUIRES: FirstUtf8Unit(sequence) is kWhole and as
// long as `sequence`.
char32_t DecodeUtf8(std::string_view sequence);

// REQUIRES: code_point <= 0x10ffff and no surrogate.
void AppendUtf8(char32_t code_point, std::string* out);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_UTF8_H_
