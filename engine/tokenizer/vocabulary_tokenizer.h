// What the kinds of tokenizer share: everything but how plain text becomes tokens.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_VOCABULARY_TOKENIZER_H_
#define LOCKSTEP_ENGINE_TOKENIZER_VOCABULARY_TOKENIZER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"
#include "engine/tokenizer/user_tokens.h"
#include "engine/tokenizer/vocabulary.h"

namespace lockstep {

class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> Encode(std::string_view text) const final;
  std::string Piece(int32_t id) const final;
  std::string Decode(std::span<const int32_t> ids) const final;

 protected:
  // Throws Error when the file wants a BOS or EOS added and names none. What it leaves open is
  // `add_bos_default` (without effect where there is no BOS) and no EOS.
  VocabularyTokenizer(Vocabulary vocabulary, bool add_bos_default);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // One stretch of text without user-defined tokens. REQUIRES: text is not empty.
  virtual void EncodePlain(std::string_view text, std::vector<int32_t>* ids) const = 0;

  // Whether EncodePlain puts a space before each stretch, which Decode takes away.
  virtual bool adds_space() const = 0;

  // The unknown token for `bytes`, which no token stands for; Error where there is none.
  int32_t UnknownFor(std::string_view bytes) const;

 private:
  Vocabulary vocabulary_;
  UserTokens user_tokens_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_VOCABULARY_TOKENIZER_H_
