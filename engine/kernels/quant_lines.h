// The lines of a quantized group read with vectors as wide as the instruction set compiled for has
// them: codes, scales and lows of 16 rows, one reader for every type (quant_layout.h).
//
// Internal linkage and no standard library, for the reasons of bits.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_QUANT_LINES_H_
#define LOCKSTEP_ENGINE_KERNELS_QUANT_LINES_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/halves.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/quant_format.h"

namespace lockstep::internal {
namespace {

using ByteLanes = int8_t __attribute__((vector_size(kVectorBytes)));

inline constexpr int32_t kFours = kBlock / 4;  // runs of four k in a block

// The i-th of a sub-block's runs of four k in the order of their lines: a line of nibbles has two.
template <GgmlType kType>
constexpr int32_t FourInOrder(int32_t i) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  return kFormat.low_bits == 4 && kFormat.subs() == 1 ? i % 2 * 4 + i / 2 : i;
}

// Tokens of a tile: fewer where sub-blocks and lows take registers too.
template <GgmlType kType>
inline constexpr size_t kQuantTileTokens =
    kType == GgmlType::kQ8_0 || kType == GgmlType::kQ4_0 || kTileTokens < 4 ? kTileTokens : 4;

inline Ints LoadLine(const uint8_t* at) {
  Ints line;
  __builtin_memcpy(&line, at, sizeof line);
  return line;
}

// kIq4Table at each byte.
inline Ints LookUp(Ints places) {
#if defined(__AVX512BW__)
  const __m512i table =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Table)));
  const __m512i places512 = __builtin_bit_cast(__m512i, places);
  return __builtin_bit_cast(Ints, _mm512_shuffle_epi8(table, places512));
#elif defined(__AVX2__)
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Table)));
  const __m256i places256 = __builtin_bit_cast(__m256i, places);
  return __builtin_bit_cast(Ints, _mm256_shuffle_epi8(table, places256));
#elif defined(LOCKSTEP_NEON)
  return __builtin_bit_cast(
      Ints, vqtbl1q_u8(vld1q_u8(kIq4Table), __builtin_bit_cast(uint8x16_t, places)));
#else
  uint8_t bytes[kVectorBytes];
  __builtin_memcpy(bytes, &places, sizeof bytes);
  for (uint8_t& byte : bytes) byte = kIq4Table[byte];
  return LoadLine(bytes);
#endif
}

// Four k of the rows of a vector, k = 4 `four` + j in byte j of a row's lane: their integers plus
// the bias, so never negative. `lines`: the rows' first bytes in the block's first line.
template <GgmlType kType>
inline Ints LoadBiased(const uint8_t* lines, int32_t four) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  if constexpr (kFormat.low_bits == 8) return LoadLine(lines + four * kLineBytes);
  Ints codes;
  if constexpr (kFormat.low_bits == 4) {
    codes = LoadLine(lines + four % 4 * kLineBytes) >> (four / 4 * 4) & 0x0f0f0f0f;
  } else {
    codes = LoadLine(lines + four / 4 * kLineBytes) >> (four % 4 * 2) & 0x03030303;
  }
  if constexpr (kFormat.high_bits > 0) {
    constexpr bool kTwo = kFormat.high_bits == 2;
    const int32_t line = kFormat.low_bits + (kTwo ? four / 4 : 0);
    const int32_t shift = (kTwo ? four % 4 * 2 : four) - kFormat.low_bits;
    const Ints high = LoadLine(lines + line * kLineBytes);
    constexpr int32_t kMask = (kTwo ? 0x03030303 : 0x01010101) << kFormat.low_bits;
    codes |= (shift < 0 ? high << -shift : high >> shift) & kMask;
  }
  if constexpr (kFormat.table) codes = LookUp(codes);
  return codes;
}

// The integers themselves.
template <GgmlType kType>
inline ByteLanes LoadIntegers(const uint8_t* lines, int32_t four) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  using Unsigned = uint8_t __attribute__((vector_size(kVectorBytes)));
  const auto biased = __builtin_bit_cast(Unsigned, LoadBiased<kType>(lines, four));
  return __builtin_bit_cast(ByteLanes, biased - static_cast<uint8_t>(kFormat.bias));  // modulo 256
}

// Scales of a block's sub-blocks for 16 rows, and lows where the type has them.
template <GgmlType kType>
struct BlockScales {
  static constexpr size_t kSubs = FormatOf(kType).sub_block == kBlock ? 1 : 2;
  Lanes scale[kSubs];
  Lanes low[kSubs];
};

inline Bytes LoadBytes(const uint8_t* from) {
  Bytes bytes;
  __builtin_memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// 16 nibbles as floats: the low ones of the bytes, and the high ones.
struct NibbleLanes {
  Lanes low, high;
};
inline NibbleLanes LoadNibbles(const uint8_t* from) {
  const Bytes bytes = LoadBytes(from);
#if defined(__AVX512BW__)
  // Widened once, and masked as wide integers: two shuffles fewer.
  const __m512i wide = _mm512_cvtepu8_epi32(__builtin_bit_cast(__m128i, bytes));
  const __m512i low = _mm512_and_si512(wide, _mm512_set1_epi32(15));
  NibbleLanes out;
  out.low.part[0] = __builtin_bit_cast(Floats, _mm512_cvtepi32_ps(low));
  out.high.part[0] = __builtin_bit_cast(Floats, _mm512_cvtepi32_ps(_mm512_srli_epi32(wide, 4)));
  return out;
#else
  return {LanesOf(bytes & 15), LanesOf(bytes >> 4 & 15)};
#endif
}

// The scales of a unit of 256 k, for types that have them: those of block b, or of any other block
// of its unit.
struct SuperScales {
  Lanes scale, low;
};
template <GgmlType kType>
inline SuperScales LoadSuperScales(const uint8_t* group, int32_t b) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  if constexpr (!kFormat.super) return {};
  const uint8_t* unit = group + UnitAt(kFormat, b);
  SuperScales out;
  out.scale = WidenHalves(unit);
  out.low = kFormat.lows ? WidenHalves(unit + kScaleBytes) : out.scale;
  return out;
}

template <GgmlType kType>
inline BlockScales<kType> LoadScales(const uint8_t* group, int32_t b, const SuperScales& supers) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  constexpr int32_t kSubs = kFormat.subs();
  const uint8_t* own = group + BlockScalesAt(kFormat, b);
  BlockScales<kType> out;
  if constexpr (!kFormat.super) {
    out.scale[0] = WidenHalves(own);
    if constexpr (kFormat.lows) out.low[0] = WidenHalves(own + kScaleBytes);
    return out;
  }
  for (int32_t s = 0; s < kSubs; ++s) {
    if constexpr (kFormat.nibbles) {
      const NibbleLanes factors = LoadNibbles(own + kRows * s);
      out.scale[s] = supers.scale * factors.low;
      out.low[s] = NegateLanes(supers.low * factors.high);
    } else {
      out.scale[s] = supers.scale * LanesOf(LoadBytes(own + kRows * s));
      if constexpr (kFormat.lows) {
        out.low[s] = NegateLanes(supers.low * LanesOf(LoadBytes(own + kRows * (kSubs + s))));
      }
    }
  }
  return out;
}

template <GgmlType kType>
inline BlockScales<kType> LoadScales(const uint8_t* group, int32_t b) {
  return LoadScales<kType>(group, b, LoadSuperScales<kType>(group, b));
}

// The sum of a sub-block's quants, from `first` on.
inline int32_t SumOfQuants(const ActivationBlock& x, int32_t first, int32_t count) {
  int32_t sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += x.quants[first + i];
  return sum;
}

// The sum of sub-block s.
template <GgmlType kType>
inline int32_t SumOfSub(const ActivationBlock& x, int32_t s) {
  constexpr int32_t kSub = FormatOf(kType).sub_block;
  return kSub == kBlock ? x.offset / -128 : SumOfQuants(x, s * kSub, kSub);
}

// What the low of sub-block s is multiplied with: the sum of its activations.
template <GgmlType kType>
inline float InputSum(const ActivationBlock& x, int32_t s) {
  return static_cast<float>(SumOfSub<kType>(x, s)) * x.scale;
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_QUANT_LINES_H_
