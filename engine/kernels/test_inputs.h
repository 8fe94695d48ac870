// Inputs and plain references shared by the kernel tests. The references follow the words of
// engine/ARITHMETIC.md and share no code with the kernels but where a block has its halves;
// std::fma is exact by IEEE 754.
#ifndef LOCKSTEP_ENGINE_KERNELS_TEST_INPUTS_H_
#define LOCKSTEP_ENGINE_KERNELS_TEST_INPUTS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "caches/random.h"
#include "engine/kernels.h"
#include "engine/kernels/quant_block.h"

namespace lockstep::kernels_test {

// Sizes that every implementation is tried with, on the host and on devices: around the lanes of a
// sum, vectors of every width, blocks, segments and tiles.
inline constexpr int32_t kMatMulCols[] = {1, 32, 64, 172, 255, 256, 257, 288, 544, 768, 1056};
inline constexpr int32_t kMatMulRows[] = {1, 15, 16, 17, 172};
inline constexpr int32_t kFewTokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
inline constexpr int32_t kManyTokens[] = {160, 161, 323};  // more than a pass over weights takes
inline constexpr int32_t kGateLengths[] = {1, 3, 15, 16, 17, 33, 100};
inline constexpr int32_t kHeadDims[] = {1, 2, 8, 15, 16, 17, 32, 64, 80, 96, 100, 128, 256};
inline constexpr int32_t kVisibleCounts[] = {600, 513, 512, 511, 257, 256, 255, 33,
                                             32,  31,  17,  16,  15,  2,   1};
inline constexpr int32_t kWindows[] = {1, 2, 5, 15, 16, 17, 31, 255, 256, 257, 300};

// Heavy-tailed, both signs, never zero: uniform in +-[1, 2) times 2^[-6, 2].
inline float RandomValue(Random* random) {
  const float mantissa = 1.0f + static_cast<float>(random->Below(1u << 23)) * 0x1p-23f;
  const float value = std::ldexp(mantissa, random->Between(-6, 2));
  return random->Below(2) == 0 ? value : -value;
}

inline std::vector<float> RandomValues(size_t count, Random* random) {
  std::vector<float> values(count);
  for (float& value : values) value = RandomValue(random);
  return values;
}

// binary16 by its definition.
inline float HalfToFloat(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction != 0 ? std::nanf("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

// A finite half, one in eight subnormal or zero. One draw a statement: the order of evaluation
// within an expression differs between compilers.
inline uint16_t RandomHalf(Random* random) {
  const uint32_t exponent = random->Below(8) == 0 ? 0 : 8 + random->Below(8);
  const uint32_t sign_and_fraction = random->Below(1u << 11);
  return static_cast<uint16_t>((sign_and_fraction >> 10) << 15 | exponent << 10 |
                               (sign_and_fraction & 1023));
}

// A normal bfloat16 in +-[2^-7, 2).
inline uint16_t RandomBF16(Random* random) {
  const uint32_t sign_and_rest = random->Below(1u << 11);
  return static_cast<uint16_t>((sign_and_rest >> 10) << 15 |
                               ((120u << 7) + (sign_and_rest & 1023)));
}

inline void AppendU16(uint16_t value, std::vector<std::byte>* out) {
  out->push_back(static_cast<std::byte>(value & 0xff));
  out->push_back(static_cast<std::byte>(value >> 8));
}

inline void StoreHalf(uint16_t half, std::byte* at) {
  at[0] = static_cast<std::byte>(half & 0xff);
  at[1] = static_cast<std::byte>(half >> 8);
}

// Blocks of any bits, a quarter of the bytes all zeros or all ones, with finite halves.
inline std::vector<std::byte> RandomBlocks(GgmlType type, int64_t count, Random* random) {
  const GgmlTypeTraits traits = *TraitsOf(type);
  std::vector<std::byte> bytes(
      static_cast<size_t>(count / traits.block_elements * traits.block_bytes));
  for (std::byte& byte : bytes) {
    const uint32_t kind = random->Below(8);
    byte = static_cast<std::byte>(kind == 0 ? 0 : kind == 1 ? 255 : random->Below(256));
  }
  const internal::QuantHalves halves = internal::HalvesOf(type);
  for (auto* at = bytes.data(); at < bytes.data() + bytes.size(); at += traits.block_bytes) {
    StoreHalf(RandomHalf(random), at + halves.scale);
    if (halves.low >= 0) StoreHalf(RandomHalf(random), at + halves.low);
  }
  return bytes;
}

// `count` elements of `type` as GGUF stores them; block formats use every quant value.
inline std::vector<std::byte> RandomWeights(GgmlType type, int64_t count, Random* random) {
  std::vector<std::byte> bytes;
  switch (type) {
    case GgmlType::kF32:
      for (int64_t i = 0; i < count; ++i) {
        const float value = RandomValue(random);
        const auto* at = reinterpret_cast<const std::byte*>(&value);
        bytes.insert(bytes.end(), at, at + sizeof value);
      }
      break;
    case GgmlType::kF16:
      for (int64_t i = 0; i < count; ++i) AppendU16(RandomHalf(random), &bytes);
      break;
    case GgmlType::kBF16:
      for (int64_t i = 0; i < count; ++i) AppendU16(RandomBF16(random), &bytes);
      break;
    case GgmlType::kQ8_0:
    case GgmlType::kQ4_0:
      for (int64_t b = 0; b < count / 32; ++b) {
        AppendU16(RandomHalf(random), &bytes);
        const int quant_bytes = type == GgmlType::kQ8_0 ? 32 : 16;
        for (int i = 0; i < quant_bytes; ++i) {
          // One in eight is the extreme: -128, or two nibbles of -8.
          const uint32_t extreme = type == GgmlType::kQ8_0 ? 0x80 : 0;
          bytes.push_back(
              static_cast<std::byte>(random->Below(8) == 0 ? extreme : random->Below(256)));
        }
      }
      break;
    default:
      bytes = RandomBlocks(type, count, random);
  }
  return bytes;
}

inline uint16_t LoadHalf(const std::byte* at) {
  return static_cast<uint16_t>(std::to_integer<int>(at[0]) | std::to_integer<int>(at[1]) << 8);
}

// Element i of a float-typed row.
inline float FloatElement(GgmlType type, const std::byte* data, int64_t i) {
  float value = 0;
  if (type == GgmlType::kF32) {
    std::memcpy(&value, data + 4 * i, 4);
  } else if (type == GgmlType::kF16) {
    value = HalfToFloat(LoadHalf(data + 2 * i));
  } else {
    const uint32_t bits = static_cast<uint32_t>(LoadHalf(data + 2 * i)) << 16;
    std::memcpy(&value, &bits, 4);
  }
  return value;
}

// Quant of element i (0..31) of one block; `block` points at its scale.
inline int BlockQuant(bool q8, const std::byte* block, int i) {
  if (q8) return static_cast<int8_t>(std::to_integer<uint8_t>(block[2 + i]));
  const int byte = std::to_integer<int>(block[2 + i % 16]);
  return (i < 16 ? byte & 15 : byte >> 4) - 8;
}

// The rows of `x` with their quantized form, owned.
struct OwnedActivations {
  std::vector<float> values;
  std::vector<ActivationBlock> blocks;
  int32_t tokens = 0;
  int32_t cols = 0;

  Activations Get() const {
    return {.tokens = tokens, .cols = cols, .values = values.data(), .blocks = blocks.data()};
  }
};

inline OwnedActivations MakeActivations(const KernelTable& kernels, int32_t tokens, int32_t cols,
                                        std::vector<float> values) {
  OwnedActivations x;
  x.tokens = tokens;
  x.cols = cols;
  x.values = std::move(values);
  if (cols % 32 != 0) return x;
  x.blocks.resize(x.values.size() / 32);
  for (int32_t t = 0; t < tokens; ++t) {
    kernels.quantize_activations(&x.values[static_cast<size_t>(t * cols)], cols,
                                 &x.blocks[static_cast<size_t>(t * (cols / 32))]);
  }
  return x;
}

// kernels.matmul over all tokens into y [tokens, stride].
inline void Multiply(const KernelTable& kernels, const PackedMatrix& w, const Activations& x,
                     int32_t group_begin, int32_t group_end, float* y, int64_t stride) {
  std::vector<float*> rows;
  for (int32_t t = 0; t < x.tokens; ++t) rows.push_back(y + t * stride);
  kernels.matmul(w, x, group_begin, group_end, rows.data());
}

// kernels.attention for one query and all heads.
inline void Attend(const KernelTable& kernels, const AttentionShape& shape, const float* q,
                   const KvView& view, int32_t visible, float* out) {
  AlignedBuffer<float> scratch(AttentionScratch(shape, visible));
  const AttentionQueries queries = {.count = 1, .q = q, .out = out, .visible = &visible};
  kernels.attention(shape, queries, view, 0, shape.num_heads, scratch.data());
}

// The weight type with the same blocks.
inline GgmlType WeightTypeOf(RowType type) {
  switch (type) {
    case RowType::kF32:
      return GgmlType::kF32;
    case RowType::kF16:
      return GgmlType::kF16;
    case RowType::kBf16:
      return GgmlType::kBF16;
    case RowType::kQ8_0:
      return GgmlType::kQ8_0;
    default:
      return GgmlType::kQ4_0;
  }
}

}  // namespace lockstep::kernels_test

#endif  // LOCKSTEP_ENGINE_KERNELS_TEST_INPUTS_H_
