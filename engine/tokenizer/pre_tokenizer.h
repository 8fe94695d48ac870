// How byte-level BPE cuts a text before it merges: merges never cross a cut. Which rule a
// vocabulary was trained with cannot be seen from the vocabulary, and another rule gives other ids
// without any sign of it: the file has to say (tokenizer.ggml.pre).
#ifndef LOCKSTEP_ENGINE_TOKENIZER_PRE_TOKENIZER_H_
#define LOCKSTEP_ENGINE_TOKENIZER_PRE_TOKENIZER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/pattern.h"

namespace lockstep {

class PreTokenizer {
 public:
  // By the value of tokenizer.ggml.pre. Throws Error at `where`, naming those that are supported.
  static PreTokenizer Make(std::string_view name, std::string_view where);

  // All names that Make knows, in quotes, for people.
  static std::string SupportedNames();

  // The ends of the pre-tokens of `text`, strictly increasing, the last one text.size(): laid end
  // to end they are the text, whatever its bytes. A byte that is not part of well-formed UTF-8 is a
  // pre-token of its own, and the text on either side of it is cut as if it stood alone. (The usual
  // tokenizers put U+FFFD in its place and lose the byte, so there is no other rule to follow.)
  std::vector<size_t> Split(std::string_view text) const;

  // Whether a pre-token that is a token as a whole becomes that token, whatever its merges say.
  bool ignores_merges() const { return ignores_merges_; }

  // Whether BOS is added when the file does not say.
  bool adds_bos() const { return adds_bos_; }

 private:
  PreTokenizer() = default;

  void SplitWellFormed(std::string_view text, size_t offset, std::vector<size_t>* ends) const;

  std::vector<Pattern> patterns_;  // each cuts the pieces of the one before
  bool ignores_merges_ = false;
  bool adds_bos_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_PRE_TOKENIZER_H_
