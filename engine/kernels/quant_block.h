// One block of a quantized row as GGUF stores it, taken apart and put together: where each type
// keeps the bits of its codes and scales (ggml's block formats, ggml/src/ggml-common.h).
#ifndef LOCKSTEP_ENGINE_KERNELS_QUANT_BLOCK_H_
#define LOCKSTEP_ENGINE_KERNELS_QUANT_BLOCK_H_

#include <cstdint>

#include "engine/gguf.h"

namespace lockstep::internal {

// The fields of quant_layout.h in plain form. Elements [0, 32) of a block of 32, [0, 256) of a
// super-block; sub-block s is elements [s * sub_block, (s + 1) * sub_block).
struct QuantBlock {
  uint16_t scale;      // F16
  uint16_t low;        // F16: the low itself; of a super-block, what its bytes multiply
  uint8_t codes[256];  // before bias and table
  int8_t scales[16];   // of a super-block's sub-blocks
  uint8_t lows[16];    // likewise
};

// Where a type's block has its F16 scale, and its other F16 or -1.
struct QuantHalves {
  int32_t scale;
  int32_t low;
};
constexpr QuantHalves HalvesOf(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_1:
    case GgmlType::kQ5_1:
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
      return {0, 2};
    case GgmlType::kQ2_K:
      return {80, 82};
    case GgmlType::kQ3_K:
      return {108, -1};
    case GgmlType::kQ6_K:
      return {208, -1};
    default:
      return {0, -1};
  }
}

// REQUIRES: IsQuantized(type); `from` and `to` are one block as long as TraitsOf says.
void ReadQuantBlock(GgmlType type, const uint8_t* from, QuantBlock* block);
void WriteQuantBlock(GgmlType type, const QuantBlock& block, uint8_t* to);

// The values of its elements (engine/ARITHMETIC.md 3): block_elements floats.
void DecodeQuantBlock(GgmlType type, const QuantBlock& block, float* values);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_QUANT_BLOCK_H_
