// User-defined tokens: text that becomes one token wherever it stands, before anything else looks
// at it.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_USER_TOKENS_H_
#define LOCKSTEP_ENGINE_TOKENIZER_USER_TOKENS_H_

#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/vocabulary.h"

namespace lockstep {

class UserTokens {
 public:
  // Keeps views of the vocabulary's tokens.
  explicit UserTokens(const Vocabulary& vocabulary);

  struct Run {
    std::string_view text;  // never empty
    int32_t token = 0;      // kNoToken: plain text
  };

  // `text` in order, cut at the user-defined tokens in it. Longer tokens are placed before shorter
  // ones over the whole text, tokens of one length from left to right; none overlap. Two runs of
  // plain text never touch. (llama.cpp does the same, but for the order within one length, which
  // it leaves to an unstable sort.)
  std::vector<Run> Split(std::string_view text) const;

 private:
  // The tokens of one length.
  struct Level {
    size_t length = 0;
    std::bitset<256> first_bytes;  // spares most look-ups
    std::unordered_map<std::string_view, int32_t> tokens;
  };

  static void Place(const Level& level, std::string_view text, std::vector<Run>* runs);

  std::vector<Level> levels_;  // longest first
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_USER_TOKENS_H_
