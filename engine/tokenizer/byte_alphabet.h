// The alphabet of byte-level vocabularies: one printable code point for each byte (GPT-2,
// encoder.py, bytes_to_unicode).
#ifndef LOCKSTEP_ENGINE_TOKENIZER_BYTE_ALPHABET_H_
#define LOCKSTEP_ENGINE_TOKENIZER_BYTE_ALPHABET_H_

#include <string>
#include <string_view>

namespace lockstep {

// Appends the bytes that `spelled` stands for. False, and nothing appended, when it is no
// well-formed UTF-8 or has a code point that stands for no byte.
bool AppendUnspelled(std::string_view spelled, std::string* bytes);

// The inverse, for every string of bytes.
std::string SpellBytes(std::string_view bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_BYTE_ALPHABET_H_
