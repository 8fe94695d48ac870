// The small vocabulary inside a synthetic model.
#ifndef LOCKSTEP_ENGINE_MODEL_SYNTHETIC_VOCAB_H_
#define LOCKSTEP_ENGINE_MODEL_SYNTHETIC_VOCAB_H_

#include <cstdint>

#include "engine/gguf.h"

namespace lockstep {

// The least size: two control tokens, 256 bytes and the merged tokens.
int32_t SyntheticVocabMinimum();

// Adds the keys of a byte-level BPE vocabulary ("gpt2", pre-tokenizer "gpt-2") of exactly
// `vocab_size` tokens: 0 "<|bos|>" and 1 "<|eos|>" (control), the 256 bytes in order, a few merged
// tokens, then "<|filler_N|>". Every text encodes to ids below the fillers.
// REQUIRES: vocab_size >= SyntheticVocabMinimum().
void AddSyntheticVocab(int32_t vocab_size, GgufWriter* writer);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_SYNTHETIC_VOCAB_H_
