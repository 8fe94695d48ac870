// tokenizer.ggml.model = "gpt2": BPE over bytes.
//
//   1. The text is cut into pre-tokens (pre_tokenizer.h).
//   2. Each byte of a pre-token is a symbol; adjacent symbols merge by the rank of the pair in the
//      file's list of merges, the leftmost pair among equals. Tokens and merges are spelled in an
//      alphabet of one printable code point for each byte.
//   3. A byte that is no token becomes its byte-kind token, else the unknown token.
//
// Decode(Encode(text)) == text for every text, where every byte has a token.
//
// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.2.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_BYTE_LEVEL_H_
#define LOCKSTEP_ENGINE_TOKENIZER_BYTE_LEVEL_H_

#include <memory>

#include "engine/tokenizer.h"

namespace lockstep {

// Throws Error as LoadVocabulary does, and when merges are absent, one is not two tokens of the
// vocabulary that together are a third, or tokenizer.ggml.pre is unknown or, unless the options
// give one, absent.
//
// A merge of tokens that no text may become (control tokens) is legal and never done; of two equal
// merges the first counts. A token with a character outside the alphabet stands for itself and is
// never made from text.
std::unique_ptr<const Tokenizer> LoadByteLevel(const GgufFile& file,
                                               const TokenizerOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_BYTE_LEVEL_H_
