// What every tokenizer reads from a GGUF file (ggml/docs/gguf.md, "Tokenizer"), checked.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_VOCABULARY_H_
#define LOCKSTEP_ENGINE_TOKENIZER_VOCABULARY_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "engine/tokenizer/hash_index.h"

namespace lockstep {

struct Vocabulary {
  std::string source;                      // the file, for errors
  std::vector<std::string> tokens;         // [n], n > 0: the bytes that each stands for
  std::vector<TokenKind> kinds;            // [n]
  std::array<int32_t, 256> byte_tokens{};  // the token of kind byte for each byte, or kNoToken

  std::optional<int32_t> unknown;
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<bool> add_bos;  // nullopt: the file does not say
  std::optional<bool> add_eos;

  // The tokens that plain text can become, by their bytes: normal and unused ones. Control, unknown
  // and byte tokens are left out, so that no text can forge them; user-defined ones are matched
  // before anything else (user_tokens.h).
  HashIndex text_tokens;

  int32_t FindText(std::string_view text) const;  // kNoToken when there is none
};

// Everything but text_tokens; normal and unused tokens are still as the file spells them.
//
// Throws Error naming the key or the token: tokens missing, none, or twice the same (empty ones
// excepted: they never match); token_type of another length or outside the kinds (absent: all
// normal); a byte token that is not <0xXX>, or two for one byte; a special id outside the
// vocabulary.
Vocabulary LoadVocabulary(const GgufFile& file);

// Respells normal and unused tokens and fills text_tokens. `respell` turns a token as the file
// spells it into its bytes, or returns false and leaves it when no text becomes that token. It must
// give different tokens different bytes.
void IndexTextTokens(const std::function<bool(std::string*)>& respell, Vocabulary* vocabulary);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_VOCABULARY_H_
