// tokenizer.ggml.model = "llama": SentencePiece's BPE, as llama.cpp reads it from a GGUF file.
//
//   1. A space is put before the text (add_space_prefix; true when absent). Tokens spell a space as
//      U+2581, and so U+2581 in a text is a space to them: it decodes as one.
//   2. The text is cut into UTF-8 sequences; bytes that form none stand alone.
//   3. Adjacent symbols that together spell a token are merged: the token of the highest score
//      first, the leftmost among equals.
//   4. A symbol that is no token becomes its bytes' tokens, or, unless every byte has one, one
//      unknown token.
//
// Kudo, Richardson, "SentencePiece", 2018.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_SENTENCEPIECE_H_
#define LOCKSTEP_ENGINE_TOKENIZER_SENTENCEPIECE_H_

#include <memory>

#include "engine/tokenizer.h"

namespace lockstep {

// Throws Error as LoadVocabulary does, and when scores are absent (without them every merge is a
// tie) or of another number than the tokens, or token types are absent (without them a control
// token cannot be told from text).
//
// Absent ids of the unknown, BOS and EOS tokens are 0, 1 and 2 as in llama.cpp, but only where that
// token is of the kind. BOS is added unless the file says otherwise.
std::unique_ptr<const Tokenizer> LoadSentencePiece(const GgufFile& file);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_SENTENCEPIECE_H_
