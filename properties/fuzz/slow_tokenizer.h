// A small vocabulary and what it makes of a text, done the slow and obvious way: the reference of
// the tokenizers, which share no code with it.
#ifndef LOCKSTEP_PROPERTIES_FUZZ_SLOW_TOKENIZER_H_
#define LOCKSTEP_PROPERTIES_FUZZ_SLOW_TOKENIZER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"
#include "engine/tokenizer.h"

namespace lockstep::fuzz {

struct SmallVocabulary {
  struct Token {
    std::string text;  // as bytes, with plain spaces
    TokenKind kind = TokenKind::kNormal;
    float score = 0;
  };
  struct Pair {
    std::string left, right;  // as bytes
  };

  bool byte_level = false;                          // else SentencePiece
  std::string pre_tokenizer;                        // byte level
  bool adds_space = true;                           // SentencePiece
  std::vector<Token> tokens;                        // no two of one text
  std::vector<Pair> merges;                         // byte level, in order of rank
  std::map<std::string, int32_t, std::less<>> ids;  // by text

  void Add(Token token);  // unless there is one of its text
  std::optional<int32_t> Find(std::string_view text, TokenKind kind) const;
};

// <unk>, <s>, </s>, byte tokens, a few characters.
SmallVocabulary SentencePieceBase(bool with_byte_tokens, bool with_unknown);
// The 256 bytes.
SmallVocabulary ByteLevelBase(std::string_view pre_tokenizer);

std::shared_ptr<const GgufFile> VocabularyFile(const SmallVocabulary& vocabulary);

// The ids of `text`, or nothing where the reference has no answer: a pre-tokenizer whose words it
// does not know, a byte without any token.
std::optional<std::vector<int32_t>> SlowEncode(const SmallVocabulary& vocabulary,
                                               std::string_view text);

// Bytes of the well-formed UTF-8 sequence that `text` begins with; 0: it begins with none.
size_t Utf8Length(std::string_view text);

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_PROPERTIES_FUZZ_SLOW_TOKENIZER_H_
