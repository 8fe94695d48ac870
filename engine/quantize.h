// Weights into the formats of model files, for synthetic models and benchmarks: to the nearest of
// what the block's smallest and largest elements allow. It is deterministic to the bit and fit for
// tests; it does not search for better scales, as a quantizer for models that people run would.
#ifndef LOCKSTEP_ENGINE_QUANTIZE_H_
#define LOCKSTEP_ENGINE_QUANTIZE_H_

#include <cstddef>
#include <span>

#include "engine/gguf.h"

namespace lockstep {

// Encodes a row of finite elements. Sub-blocks with lows span [smallest, largest] of their elements
// (of a super-block, and 0); in the others the element of the largest magnitude gets the integer of
// the largest magnitude. Scales of a super-block are those, rounded to what its bytes hold.
// REQUIRES: a type with traits, whole blocks, and `out` as long as they take.
void QuantizeWeights(GgmlType type, std::span<const float> row, std::span<std::byte> out);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_QUANTIZE_H_
