// The quantized blocks of model files as exact doubles, each type in the terms of ggml's format
// (block_q4_1 to block_iq4_xs of ggml/src/ggml-common.h) and sharing no code with the engine.
#ifndef LOCKSTEP_ORACLE_REFERENCE_BLOCKS_H_
#define LOCKSTEP_ORACLE_REFERENCE_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "engine/gguf.h"

namespace lockstep::oracle {

// Elements of a block: 32 or 256. REQUIRES: IsQuantized(type), here and below.
int64_t BlockElements(GgmlType type);
int64_t BlockBytes(GgmlType type);

// The values of one block, and what of each is its sub-block's constant part, 0 in types without:
// the scaled integer is their difference. Both [BlockElements].
void ValuesOfBlock(GgmlType type, const std::byte* block, double* values, double* constants);

// How many consecutive elements share a scale.
int64_t ElementsOfAScale(GgmlType type);

// Whether sub-blocks have a constant part.
bool HasConstants(GgmlType type);

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_REFERENCE_BLOCKS_H_
