// How device kernels read the lines of a PackedMatrix (engine/kernels/packed_layout.h): one
// description for every type, of which the product of one token, that of many and the embedding are
// made. For nvcc too.
//
// A *strip* is one stream of lines of 64 bytes: a group of 16 rows, or for halves, two groups that
// share their lines. Sixteen threads read a line, a word each: for F32 a weight of one row, for
// halves those of two rows, for the quantized types bits of one row's block of 32.
#ifndef LOCKSTEP_ENGINE_DEVICE_WEIGHT_LINES_H_
#define LOCKSTEP_ENGINE_DEVICE_WEIGHT_LINES_H_

#include <cstdint>

#include "engine/device/reduce.h"
#include "engine/device/weight_type.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/quant_layout.h"

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

// A quantized type's QuantFormat (engine/kernels/quant_layout.h), in numbers that kernels may name.
template <WeightType kType>
struct QuantOf {
  static constexpr internal::QuantFormat kFormat = internal::FormatOf(kType);
  static constexpr int32_t kLowBits = kFormat.low_bits;
  static constexpr int32_t kHighBits = kFormat.high_bits;
  static constexpr int32_t kLines = kFormat.lines();
  static constexpr int32_t kSubs = kFormat.subs();
  static constexpr bool kTable = kFormat.table;
  static constexpr bool kLows = kFormat.lows;
  static constexpr bool kSuper = kFormat.super;
  static constexpr bool kNibbles = kFormat.nibbles;
  // What the integers of CodeWord are too large by: those with a sign are right as they are.
  static constexpr int32_t kBias = kLowBits == 8 || kTable ? 0 : kFormat.bias;
  // Whether a product takes the sum of a sub-block's activations.
  static constexpr bool kSums = kBias != 0 || kLows;
};

// Bytes of a strip of `cols` columns.
template <WeightType kType>
LOCKSTEP_KERNEL int64_t StripBytes(int32_t cols) {
  if constexpr (kIsQuantized<kType>) {
    return internal::QuantGroupBytes(internal::FormatOf(kType), cols / 32);
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

// The integers of kIq4Table at each byte of `places`, which are below 16.
LOCKSTEP_KERNEL uint32_t LookUpIq4(uint32_t places) {
  constexpr uint32_t kWords[] = {internal::Iq4Word(0), internal::Iq4Word(4), internal::Iq4Word(8),
                                 internal::Iq4Word(12)};
  const uint32_t pairs = places | places >> 4;  // bytes 0 and 2 are two places each
  const uint32_t selector = ((pairs & 0xffu) | (pairs >> 8 & 0xff00u)) & 0x7777u;
  const uint32_t low = BytesAt(kWords[0], kWords[1], selector);
  const uint32_t high = BytesAt(kWords[2], kWords[3], selector);
  const uint32_t upper = (places >> 3 & 0x01010101u) * 0xffu;
  return (low & ~upper) | (high & upper);
}

// Four k of a row's block, k = 4 `four` + j in byte j, as bytes with a sign: their integers plus
// kBias. line(i) is the row's word of the block's line i.
template <WeightType kType, typename Line>
LOCKSTEP_KERNEL uint32_t CodeWord(const Line& line, int32_t four) {
  using Quant = QuantOf<kType>;
  uint32_t codes = 0;
  if constexpr (Quant::kLowBits == 8) {
    codes = line(four) ^ 0x80808080u;
  } else if constexpr (Quant::kLowBits == 4) {
    codes = line(four % 4) >> (four / 4 * 4) & 0x0f0f0f0fu;
  } else {
    codes = line(four / 4) >> (four % 4 * 2) & 0x03030303u;
  }
  if constexpr (Quant::kHighBits == 1) {
    codes |= (line(Quant::kLowBits) >> four & 0x01010101u) << Quant::kLowBits;
  } else if constexpr (Quant::kHighBits == 2) {
    const uint32_t high = line(Quant::kLowBits + four / 4) >> (four % 4 * 2);
    codes |= (high & 0x03030303u) << Quant::kLowBits;
  }
  if constexpr (Quant::kTable) codes = LookUpIq4(codes);
  return codes;
}

// Scale and low of a sub-block (D and L of engine/ARITHMETIC.md 3).
struct SubScale {
  float scale;
  float low;  // 0 where the type has none
};

// Of sub-block s of block b, of row `row` of the group that begins at byte `group`.
template <WeightType kType, typename Bytes>
LOCKSTEP_KERNEL SubScale LoadSubScale(const Bytes& weights, int64_t group, int32_t b, int32_t s,
                                      int32_t row) {
  using Quant = QuantOf<kType>;
  const int64_t own = group + internal::BlockScalesAt(internal::FormatOf(kType), b);
  const int64_t halves =
      Quant::kSuper ? group + internal::UnitAt(internal::FormatOf(kType), b) : own;
  SubScale out = {WidenF16(weights.template Load<uint16_t>(halves + 2 * row)), 0.0f};
  if constexpr (Quant::kLows) {
    out.low = WidenF16(weights.template Load<uint16_t>(halves + internal::kScaleBytes + 2 * row));
  }
  if constexpr (Quant::kSuper) {
    const int64_t at = own + row;
    const int32_t byte = weights.template Load<int8_t>(at + s * internal::kRows);
    out.scale = out.scale * static_cast<float>(Quant::kNibbles ? byte & 15 : byte);
    if constexpr (Quant::kLows) {
      const int32_t low =
          Quant::kNibbles
              ? byte >> 4 & 15
              : weights.template Load<int8_t>(at + (Quant::kSubs + s) * internal::kRows);
      out.low = -(out.low * static_cast<float>(low));
    }
  }
  return out;
}

// `sum` plus four activations.
LOCKSTEP_KERNEL int32_t AddFour(uint32_t quants, int32_t sum) {
  return Dp4a(0x01010101u, quants, sum);
}

// A sub-block's two steps of the chain: `dot` of its integers, `x_sum` of its activations, whose
// scale is `dx`.
template <WeightType kType>
LOCKSTEP_KERNEL float AddSubBlock(int32_t dot, int32_t x_sum, SubScale scale, float dx, float acc) {
  acc = Fma(static_cast<float>(dot), scale.scale * dx, acc);
  if constexpr (QuantOf<kType>::kLows) {
    acc = Fma(scale.low, static_cast<float>(x_sum) * dx, acc);
  }
  return acc;
}

// Weight (row, k) as the number that it stands for (engine/ARITHMETIC.md 3).
template <WeightType kType, typename Bytes>
LOCKSTEP_KERNEL float LoadWeight(const Bytes& weights, int32_t cols, int32_t row, int32_t k) {
  const int64_t strip = row / kStripRows<kType> * StripBytes<kType>(cols);
  const int32_t r = row % kStripRows<kType>;
  if constexpr (kIsQuantized<kType>) {
    using Quant = QuantOf<kType>;
    const int32_t b = k / 32;
    const int32_t i = k % 32;
    const int64_t lines = strip + internal::CodesAt(internal::FormatOf(kType), b) + 4 * r;
    const uint32_t word = CodeWord<kType>(
        [&](int32_t line) { return weights.template Load<uint32_t>(lines + line * kLineBytes); },
        i / 4);
    const auto code = static_cast<int8_t>(word >> (8 * (i % 4)));
    const auto integer = static_cast<float>(code - Quant::kBias);
    const SubScale sub = LoadSubScale<kType>(weights, strip, b, i / (32 / Quant::kSubs), r);
    return Quant::kLows ? Fma(integer, sub.scale, sub.low) : integer * sub.scale;
  } else {
    const int64_t line = strip + int64_t{k} * kLineBytes;
    const auto word = weights.template Load<uint32_t>(line + r / kWordRows<kType> * 4);
    return WeightOf<kType>(word, r % kWordRows<kType>);
  }
}

// What becomes of an output: plus the bias, times the scale, capped, stored, and added to the
// residual.
struct Epilogue {
  int32_t rows;
  float scale;               // 1: none
  float cap;                 // 0: none
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
  if (args.cap != 0.0f) sum = SoftCap(sum, args.cap);
  if (y.size() > 0) y[at] = sum;
  if (residual.size() > 0) residual[at] = residual[at] + sum;
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_WEIGHT_LINES_H_
