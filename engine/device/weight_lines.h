// How device kernels read the lines of a PackedMatrix (engine/kernels/packed_layout.h). For nvcc
// too.
//
// A *strip* is one stream of lines of 64 bytes: a group of 16 rows, or for halves, two groups that
// share their lines. Sixteen threads read a line, a word each: for F32 a weight of one row, for
// halves those of two rows, for the quantized types 4 (Q8_0) or 8 (Q4_0) weights of one row.
#ifndef LOCKSTEP_ENGINE_DEVICE_WEIGHT_LINES_H_
#define LOCKSTEP_ENGINE_DEVICE_WEIGHT_LINES_H_

#include <cstdint>

#include "engine/device/reduce.h"
#include "engine/device/weight_type.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::device {

using internal::kBlocksPerSegment;
using internal::kLineBytes;
using internal::kSegment;

constexpr int32_t kLineThreads = 16;

// Rows of a strip, and of one thread's word of it.
template <WeightType kType>
constexpr int32_t kStripRows = kIsHalf<kType> ? 32 : 16;
template <WeightType kType>
constexpr int32_t kWordRows = kStripRows<kType> / kLineThreads;

template <WeightType kType>
constexpr int32_t kQuantLines =
    kType == WeightType::kQ8_0 ? internal::kQ8Lines : internal::kQ4Lines;

// Bytes of a strip of `cols` columns.
template <WeightType kType>
LOCKSTEP_KERNEL int64_t StripBytes(int32_t cols) {
  if constexpr (kIsQuantized<kType>) {
    return internal::QuantGroupBytes(kQuantLines<kType>, cols / 32);
  } else {
    return int64_t{cols} * kLineBytes;
  }
}

// The weight of row i of a word, of a float type.
template <WeightType kType>
LOCKSTEP_KERNEL float WeightOf(uint32_t word, int32_t i) {
  if constexpr (kType == WeightType::kF32) {
    return FloatOf(word);
  } else {
    const auto half = static_cast<uint16_t>(word >> (16 * i));
    return kType == WeightType::kF16 ? WidenF16(half) : WidenBF16(half);
  }
}

// What one line adds to the sum of a block. `low` and `high` are the words of quantized activations
// at the line's own place and, for Q4_0, 16 elements on.
template <WeightType kType>
LOCKSTEP_KERNEL int32_t DotLine(uint32_t word, uint32_t low, uint32_t high, int32_t sum) {
  if constexpr (kType == WeightType::kQ8_0) {
    return Dp4a(word ^ 0x80808080u, low, sum);
  } else {
    return Dp4a((word >> 4) & 0x0f0f0f0fu, high, Dp4a(word & 0x0f0f0f0fu, low, sum));
  }
}

// Where the sum of a block begins: nibbles are 8 too large, and ActivationBlock::offset is -128
// times the sum of the activations.
template <WeightType kType>
LOCKSTEP_KERNEL int32_t FirstSum(int32_t offset) {
  return kType == WeightType::kQ4_0 ? offset / 16 : 0;
}

// What becomes of an output: plus the bias, times the scale, stored, and added to the residual.
struct Epilogue {
  int32_t rows;
  float scale;               // 1: none
  Global<float> y;           // [tokens, rows], or empty
  Global<const float> bias;  // [rows], or empty
  Global<float> residual;    // [tokens, rows], or empty
};

template <typename Block>
LOCKSTEP_KERNEL void StoreOutput(const Block& block, const Epilogue& args, int64_t token,
                                 int32_t row, float sum) {
  if (row >= args.rows) return;
  const int64_t at = token * args.rows + row;
  const auto bias = block.Use(args.bias);
  const auto y = block.Use(args.y);
  const auto residual = block.Use(args.residual);
  if (bias.size() > 0) sum = sum + bias[row];
  if (args.scale != 1.0f) sum = sum * args.scale;
  if (y.size() > 0) y[at] = sum;
  if (residual.size() > 0) residual[at] = residual[at] + sum;
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_WEIGHT_LINES_H_
