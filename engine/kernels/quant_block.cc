#include "engine/kernels/quant_block.h"

#include <cstring>

#include "engine/kernels/bits.h"
#include "engine/kernels/quant_format.h"

namespace lockstep::internal {
namespace {

// Bits of a block: `bits` of them in byte `byte`, from bit `shift` on.
struct Field {
  int32_t byte;
  int32_t shift;
  int32_t bits;  // 0: there is none
};

// An integer of a block: the low bits in one field, the rest in another.
struct Place {
  Field low;
  Field high = {0, 0, 0};
};

inline uint32_t Get(const uint8_t* block, const Field& f) {
  return static_cast<uint32_t>(block[f.byte]) >> f.shift & ((1u << f.bits) - 1);
}

inline uint32_t Get(const uint8_t* block, const Place& place) {
  const uint32_t low = Get(block, place.low);
  return place.high.bits == 0 ? low : low | Get(block, place.high) << place.low.bits;
}

inline void Put(uint32_t value, const Field& f, uint8_t* block) {
  block[f.byte] = static_cast<uint8_t>(block[f.byte] | (value & ((1u << f.bits) - 1)) << f.shift);
}

inline void Put(uint32_t value, const Place& place, uint8_t* block) {
  Put(value, place.low, block);
  if (place.high.bits > 0) Put(value >> place.low.bits, place.high, block);
}

// Nibbles of 32 elements from `byte` on: i and i + 16 share a byte. The fifth bits are one number.
constexpr Field Nibble(int32_t byte, int32_t i) { return {byte + i % 16, 4 * (i / 16), 4}; }
constexpr Field FifthBit(int32_t byte, int32_t i) { return {byte + i / 8, i % 8, 1}; }

// Of a super-block: two bits of 128 elements in 32 bytes, nibbles of 64 in 32, one bit of 256 in
// 32.
constexpr Field TwoBits(int32_t byte, int32_t i) {
  return {byte + 32 * (i / 128) + i % 32, 2 * (i % 128 / 32), 2};
}
constexpr Field SuperNibble(int32_t byte, int32_t i) {
  return {byte + 32 * (i / 64) + i % 32, 4 * (i % 64 / 32), 4};
}
constexpr Field OneBit(int32_t byte, int32_t i) { return {byte + i % 32, i / 32, 1}; }

// The code of element i.
template <GgmlType kType>
constexpr Place CodePlace(int32_t i) {
  switch (kType) {
    case GgmlType::kQ4_1:
      return {Nibble(4, i)};
    case GgmlType::kQ5_0:
      return {Nibble(6, i), FifthBit(2, i)};
    case GgmlType::kQ5_1:
      return {Nibble(8, i), FifthBit(4, i)};
    case GgmlType::kQ8_0:
      return {{2 + i, 0, 8}};
    case GgmlType::kQ2_K:
      return {TwoBits(16, i)};
    case GgmlType::kQ3_K:
      return {TwoBits(32, i), OneBit(0, i)};
    case GgmlType::kQ4_K:
      return {SuperNibble(16, i)};
    case GgmlType::kQ5_K:
      return {SuperNibble(48, i), OneBit(16, i)};
    case GgmlType::kQ6_K:  // 128 elements in 64 bytes of nibbles
      return {{64 * (i / 128) + i % 64, 4 * (i % 128 / 64), 4}, TwoBits(128, i)};
    case GgmlType::kIQ4_XS:
      return {Nibble(8 + i / 32 * 16, i % 32)};
    default:  // Q4_0, IQ4_NL
      return {Nibble(2, i)};
  }
}

// The byte of sub-block s's scale.
template <GgmlType kType>
constexpr Place ScalePlace(int32_t s) {
  switch (kType) {
    case GgmlType::kQ2_K:
      return {{s, 0, 4}};
    case GgmlType::kQ3_K:
      return {{96 + s % 8, 4 * (s / 8), 4}, {104 + s % 4, 2 * (s / 4), 2}};
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
      if (s < 4) return {{4 + s, 0, 6}};
      return {{12 + s - 4, 0, 4}, {4 + s - 4, 6, 2}};
    case GgmlType::kIQ4_XS:
      return {{4 + s / 2, 4 * (s % 2), 4}, {2 + s / 4, 2 * (s % 4), 2}};
    default:  // Q6_K
      return {{192 + s, 0, 8}};
  }
}

// The byte of sub-block s's low, of a type that has lows.
template <GgmlType kType>
constexpr Place LowPlace(int32_t s) {
  if (kType == GgmlType::kQ2_K) return {{s, 4, 4}};
  if (s < 4) return {{8 + s, 0, 6}};
  return {{12 + s - 4, 4, 4}, {8 + s - 4, 6, 2}};
}

// What is taken off the byte of a scale as stored.
constexpr int32_t ScaleBias(GgmlType type) {
  return type == GgmlType::kQ3_K || type == GgmlType::kIQ4_XS ? 32 : 0;
}

// A signed byte is stored as itself.
constexpr uint32_t CodeFlip(GgmlType type) { return type == GgmlType::kQ8_0 ? 0x80 : 0; }

template <GgmlType kType>
constexpr int32_t Elements() {
  return FormatOf(kType).super ? kSegment : kBlock;
}

template <GgmlType kType>
constexpr int32_t Subs() {
  return FormatOf(kType).super ? kSegment / FormatOf(kType).sub_block : 0;
}

template <GgmlType kType>
void ReadBlockOf(const uint8_t* from, QuantBlock* block) {
  constexpr QuantHalves kHalves = HalvesOf(kType);
  std::memcpy(&block->scale, from + kHalves.scale, sizeof block->scale);
  if constexpr (kHalves.low >= 0) std::memcpy(&block->low, from + kHalves.low, sizeof block->low);
  for (int32_t i = 0; i < Elements<kType>(); ++i) {
    block->codes[i] = static_cast<uint8_t>(Get(from, CodePlace<kType>(i)) ^ CodeFlip(kType));
  }
  for (int32_t s = 0; s < Subs<kType>(); ++s) {
    const auto byte = static_cast<int32_t>(Get(from, ScalePlace<kType>(s)));
    block->scales[s] = static_cast<int8_t>(byte - ScaleBias(kType));
    if constexpr (FormatOf(kType).lows) {
      block->lows[s] = static_cast<uint8_t>(Get(from, LowPlace<kType>(s)));
    }
  }
}

template <GgmlType kType>
void WriteBlockOf(const QuantBlock& block, uint8_t* to) {
  constexpr QuantHalves kHalves = HalvesOf(kType);
  std::memset(to, 0, static_cast<size_t>(TraitsOf(kType)->block_bytes));
  std::memcpy(to + kHalves.scale, &block.scale, sizeof block.scale);
  if constexpr (kHalves.low >= 0) std::memcpy(to + kHalves.low, &block.low, sizeof block.low);
  for (int32_t i = 0; i < Elements<kType>(); ++i) {
    Put(block.codes[i] ^ CodeFlip(kType), CodePlace<kType>(i), to);
  }
  for (int32_t s = 0; s < Subs<kType>(); ++s) {
    Put(static_cast<uint32_t>(block.scales[s] + ScaleBias(kType)), ScalePlace<kType>(s), to);
    if constexpr (FormatOf(kType).lows) Put(block.lows[s], LowPlace<kType>(s), to);
  }
}

}  // namespace

void ReadQuantBlock(GgmlType type, const uint8_t* from, QuantBlock* block) {
  ForQuantType(type, [&]<GgmlType kType>() { ReadBlockOf<kType>(from, block); });
}

void WriteQuantBlock(GgmlType type, const QuantBlock& block, uint8_t* to) {
  ForQuantType(type, [&]<GgmlType kType>() { WriteBlockOf<kType>(block, to); });
}

void DecodeQuantBlock(GgmlType type, const QuantBlock& block, float* values) {
  const QuantFormat f = FormatOf(type);
  const float all_scale = WidenF16(block.scale);
  const float all_low = f.lows ? WidenF16(block.low) : 0.0f;
  const int32_t elements = f.super ? kSegment : kBlock;
  for (int32_t i = 0; i < elements; ++i) {
    const int32_t s = i / f.sub_block;
    const float scale = f.super ? all_scale * static_cast<float>(block.scales[s]) : all_scale;
    const int32_t code = f.table ? kIq4Table[block.codes[i]] : block.codes[i];
    const auto integer = static_cast<float>(code - f.bias);
    if (!f.lows) {
      values[i] = integer * scale;
    } else {
      const float low = f.super ? -(all_low * static_cast<float>(block.lows[s])) : all_low;
      values[i] = Fma(integer, scale, low);
    }
  }
}

}  // namespace lockstep::internal
