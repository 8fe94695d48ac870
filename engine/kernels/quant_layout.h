// Every quantized weight type as one form: what its blocks are made of, and where they lie in a
// PackedMatrix. Kernels are written over this form once; a type is a line in FormatOf.
//
// A *block* is 32 consecutive k of a row. Its elements have codes, unsigned integers whose low and
// high bits lie in planes of their own; the integer of an element is its code less a bias, or what
// a table has for the code. A *sub-block* of 32 or 16 k has one scale and, in some types, a low: an
// element's value is scale * integer + low (engine/ARITHMETIC.md 3).
//
// A *unit* of blocks is stored together, for the 16 rows of a group: a head of scales in whole
// lines of 64 bytes, then for each block its lines of codes.
//
//   head, of 2 blocks     F16 scales of the first block's 16 rows, then of the second's
//   head, of 1 block      F16 scales, F16 lows
//   head, of 8 blocks     F16 scales of all 256 k, F16 scales of the lows where there are any; then
//     (a ggml super-      for each block, 16 rows at a time, bytes that multiply them: of each
//     block)              sub-block, or with lows, of the scale and then of the low. In Q2_K both
//                         are in one byte, the low's in its high half.
//   low plane, 8 bits     8 lines. Byte 4 r + j of line i: row r, k = 4 i + j.
//              4 bits     4 lines. Byte 4 r + j of line i: k = 4 i + j in its low, k = 16 + 4 i + j
//                         in its high nibble.
//              2 bits     2 lines. Byte 4 r + j of line i: k = 16 i + 4 m + j at bit 2 m.
//   high plane, 2 bits    2 lines, as the low plane of 2 bits.
//               1 bit     1 line. Byte 4 r + j: k = 4 m + j at bit m.
//
// The last unit of a row may have fewer blocks; its head is whole. Internal linkage and no standard
// library, for the reasons of bits.h, and for nvcc too: device kernels read the same bytes.
#ifndef LOCKSTEP_ENGINE_KERNELS_QUANT_LAYOUT_H_
#define LOCKSTEP_ENGINE_KERNELS_QUANT_LAYOUT_H_

#include <cstdint>

#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

struct QuantFormat {
  int32_t low_bits;      // of the low plane, and its lines of a block
  int32_t high_bits;     // of the high plane, and its lines
  int32_t bias;          // what is taken off a code
  int32_t sub_block;     // k with one scale: 32 or 16
  bool table = false;    // codes are places in kIq4Table
  bool lows = false;     // sub-blocks have a low
  bool super = false;    // scales are bytes, times a scale of 256 k
  bool nibbles = false;  // the bytes of scale and low are one

  LOCKSTEP_LAYOUT int32_t lines() const { return low_bits + high_bits; }
  LOCKSTEP_LAYOUT int32_t subs() const { return kBlock / sub_block; }
  LOCKSTEP_LAYOUT int32_t unit_blocks() const { return super ? kBlocksPerSegment : lows ? 1 : 2; }
  // Bytes of a head before those of the sub-blocks, and of one block's.
  LOCKSTEP_LAYOUT int32_t super_bytes() const { return kScaleBytes * (lows ? 2 : 1); }
  LOCKSTEP_LAYOUT int32_t scale_bytes() const {
    return kRows * (lows && !nibbles ? 2 * subs() : subs());
  }
  LOCKSTEP_LAYOUT int32_t head_lines() const {
    return super ? (super_bytes() + kBlocksPerSegment * scale_bytes() + kLineBytes - 1) / kLineBytes
                 : 1;
  }
};

// REQUIRES: a quantized type. Of GgmlType, or of an enum with the same names (device kernels' own).
template <typename Type>
LOCKSTEP_LAYOUT QuantFormat FormatOf(Type type) {
  switch (type) {
    case Type::kQ4_0:
      return {.low_bits = 4, .high_bits = 0, .bias = 8, .sub_block = 32};
    case Type::kQ4_1:
      return {.low_bits = 4, .high_bits = 0, .bias = 0, .sub_block = 32, .lows = true};
    case Type::kQ5_0:
      return {.low_bits = 4, .high_bits = 1, .bias = 16, .sub_block = 32};
    case Type::kQ5_1:
      return {.low_bits = 4, .high_bits = 1, .bias = 0, .sub_block = 32, .lows = true};
    case Type::kQ2_K:
      return {.low_bits = 2,
              .high_bits = 0,
              .bias = 0,
              .sub_block = 16,
              .lows = true,
              .super = true,
              .nibbles = true};
    case Type::kQ3_K:
      return {.low_bits = 2, .high_bits = 1, .bias = 4, .sub_block = 16, .super = true};
    case Type::kQ4_K:
      return {
          .low_bits = 4, .high_bits = 0, .bias = 0, .sub_block = 32, .lows = true, .super = true};
    case Type::kQ5_K:
      return {
          .low_bits = 4, .high_bits = 1, .bias = 0, .sub_block = 32, .lows = true, .super = true};
    case Type::kQ6_K:
      return {.low_bits = 4, .high_bits = 2, .bias = 32, .sub_block = 16, .super = true};
    case Type::kIQ4_NL:
      return {.low_bits = 4, .high_bits = 0, .bias = 128, .sub_block = 32, .table = true};
    case Type::kIQ4_XS:
      return {.low_bits = 4,
              .high_bits = 0,
              .bias = 128,
              .sub_block = 32,
              .table = true,
              .super = true};
    default:  // Q8_0
      return {.low_bits = 8, .high_bits = 0, .bias = 128, .sub_block = 32};
  }
}

// The integers of IQ4_NL and IQ4_XS, plus 128: like codes, they are unsigned and have a bias.
inline constexpr uint8_t kIq4Table[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                          129, 141, 153, 166, 181, 197, 217, 241};

// Four of them as they are, from `first` on: bytes of a word.
LOCKSTEP_LAYOUT uint32_t Iq4Word(int32_t first) {
  uint32_t word = 0;
  for (int32_t j = 0; j < 4; ++j) word |= (kIq4Table[first + j] ^ 0x80u) << (8 * j);
  return word;
}

// Offsets within a group: of block b's unit, of its first line of codes; and the group's bytes.
LOCKSTEP_LAYOUT int64_t UnitAt(const QuantFormat& f, int64_t b) {
  const int32_t blocks = f.unit_blocks();
  return b / blocks * kLineBytes * (f.head_lines() + int64_t{blocks} * f.lines());
}
LOCKSTEP_LAYOUT int64_t CodesAt(const QuantFormat& f, int64_t b) {
  return UnitAt(f, b) + kLineBytes * (f.head_lines() + b % f.unit_blocks() * f.lines());
}
LOCKSTEP_LAYOUT int64_t QuantGroupBytes(const QuantFormat& f, int64_t blocks) {
  const int64_t rest = blocks % f.unit_blocks();
  return UnitAt(f, blocks) + (rest > 0 ? kLineBytes * (f.head_lines() + rest * f.lines()) : 0);
}

// Offset within a group of what block b alone has in its unit's head.
LOCKSTEP_LAYOUT int64_t BlockScalesAt(const QuantFormat& f, int64_t b) {
  if (!f.super) return UnitAt(f, b) + b % f.unit_blocks() * kScaleBytes;
  return UnitAt(f, b) + f.super_bytes() + b % f.unit_blocks() * f.scale_bytes();
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_QUANT_LAYOUT_H_
