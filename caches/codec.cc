#include "caches/codec.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "caches/check.h"

namespace lockstep {
namespace {

constexpr uint16_t kF16Nan = 0x7e00;
constexpr float kF16Max = 65504.0f;
constexpr float kF16Overflow = 65520.0f;           // from here on binary16 rounds to infinity
constexpr float kF16Underflow = 1.0f / (1 << 25);  // up to here binary16 rounds to zero

void StoreU16(std::byte* at, uint16_t value) { std::memcpy(at, &value, sizeof(value)); }

uint16_t LoadU16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// What becomes of a block, see the header.
enum class BlockKind { kOrdinary, kZero, kNan };

struct BlockScale {
  BlockKind kind;
  float d;  // meaningful for kOrdinary alone: finite, not zero as F16
};

BlockScale ScaleOf(float d) {
  if (std::fabs(d) <= kF16Underflow) return {BlockKind::kZero, 0.0f};
  if (std::fabs(d) >= kF16Overflow) d = std::copysign(kF16Max, d);
  return {BlockKind::kOrdinary, d};
}

// The element of largest magnitude, the first among equals. kNan when one is not finite.
BlockScale LargestOf(const float* x) {
  float max = 0.0f;
  for (int64_t i = 0; i < kBlockElements; ++i) {
    if (!std::isfinite(x[i])) return {BlockKind::kNan, 0.0f};
    if (std::fabs(max) < std::fabs(x[i])) max = x[i];
  }
  return {BlockKind::kOrdinary, max};
}

// Clamps before the conversion, so that no float outside int is ever converted.
int8_t Q8_0Code(float scaled) {
  if (scaled >= 127.0f) return 127;
  if (scaled <= -127.0f) return -127;
  const auto truncated = static_cast<int32_t>(scaled);
  const float rest = scaled - static_cast<float>(truncated);  // exact
  if (rest >= 0.5f) return static_cast<int8_t>(truncated + 1);
  if (rest <= -0.5f) return static_cast<int8_t>(truncated - 1);
  return static_cast<int8_t>(truncated);
}

unsigned Q4_0Code(float scaled) {
  const float shifted = scaled + 8.5f;
  if (shifted >= 15.0f) return 15;
  if (shifted <= 0.0f) return 0;
  return static_cast<unsigned>(shifted);
}

void EncodeQ8_0Block(const float* x, std::byte* block) {
  BlockScale scale = LargestOf(x);
  if (scale.kind == BlockKind::kOrdinary) scale = ScaleOf(std::fabs(scale.d) / 127.0f);
  if (scale.kind != BlockKind::kOrdinary) {
    StoreU16(block, scale.kind == BlockKind::kNan ? kF16Nan : 0);
    std::memset(block + 2, 0, kBlockElements);
    return;
  }
  StoreU16(block, F16FromF32(scale.d));
  const float id = 1.0f / scale.d;
  for (int64_t i = 0; i < kBlockElements; ++i) {
    block[2 + i] = static_cast<std::byte>(Q8_0Code(x[i] * id));
  }
}

void EncodeQ4_0Block(const float* x, std::byte* block) {
  constexpr int64_t kHalf = kBlockElements / 2;
  BlockScale scale = LargestOf(x);
  if (scale.kind == BlockKind::kOrdinary) scale = ScaleOf(scale.d / -8.0f);
  if (scale.kind != BlockKind::kOrdinary) {
    StoreU16(block, scale.kind == BlockKind::kNan ? kF16Nan : 0);
    std::memset(block + 2, 0x88, kHalf);  // code 8 stands for zero
    return;
  }
  StoreU16(block, F16FromF32(scale.d));
  const float id = 1.0f / scale.d;
  for (int64_t i = 0; i < kHalf; ++i) {
    const unsigned low = Q4_0Code(x[i] * id);
    const unsigned high = Q4_0Code(x[i + kHalf] * id);
    block[2 + i] = static_cast<std::byte>(low | high << 4);
  }
}

void DecodeQ8_0Block(const std::byte* block, float* x) {
  const float d = F32FromF16(LoadU16(block));
  for (int64_t i = 0; i < kBlockElements; ++i) {
    x[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

void DecodeQ4_0Block(const std::byte* block, float* x) {
  constexpr int64_t kHalf = kBlockElements / 2;
  const float d = F32FromF16(LoadU16(block));
  for (int64_t i = 0; i < kHalf; ++i) {
    const int codes = std::to_integer<int>(block[2 + i]);
    x[i] = static_cast<float>((codes & 15) - 8) * d;
    x[i + kHalf] = static_cast<float>((codes >> 4) - 8) * d;
  }
}

void CheckSizes(RowType type, size_t elements, size_t bytes) {
  const bool blocks = type == RowType::kQ8_0 || type == RowType::kQ4_0;
  LS_CHECK(!blocks || elements % kBlockElements == 0, "{} row of {} elements", RowTypeName(type),
           elements);
  const int64_t expected = RowBytes(type, static_cast<int64_t>(elements));
  LS_CHECK(bytes == static_cast<size_t>(expected), "{} row of {} elements in {} bytes",
           RowTypeName(type), elements, bytes);
}

}  // namespace

// Both directions compute every case and select, so that loops over rows become vector code.
uint16_t F16FromF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal as binary16: rebias the exponent by 112 and round 13 bits away, ties to even. A carry
  // out of the mantissa moves into the exponent, which is the right next value, infinity included.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  // Subnormal as binary16: in [0.5, 1) the last place of binary32 is 2^-24, so the sum rounds to
  // it.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t kept = magnitude < 0x38800000u ? subnormal : normal;  // 2^-14
  kept = magnitude >= 0x47800000u ? 0x7c00u : kept;              // 65536 and more
  kept |= bits >> 16 & 0x8000u;
  return static_cast<uint16_t>(magnitude > 0x7f800000u ? kF16Nan : kept);
}

float F32FromF16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  // Zero or a multiple of 2^-24, exact in F32.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  uint32_t wide = magnitude < 0x400u ? subnormal : normal;
  wide = magnitude >= 0x7c00u ? 0x7f800000u : wide;
  wide |= static_cast<uint32_t>(bits & 0x8000u) << 16;
  return std::bit_cast<float>(magnitude > 0x7c00u ? 0x7fc00000u : wide);
}

void EncodeRow(RowType type, std::span<const float> row, std::span<std::byte> stored) {
  CheckSizes(type, row.size(), stored.size());
  const float* x = row.data();
  std::byte* out = stored.data();
  switch (type) {
    case RowType::kF32:
      if (!row.empty()) std::memcpy(out, x, stored.size());
      return;
    case RowType::kF16:
      for (size_t i = 0; i < row.size(); ++i) StoreU16(out + 2 * i, F16FromF32(x[i]));
      return;
    case RowType::kQ8_0:
      for (size_t i = 0; i < row.size(); i += kBlockElements, out += kQ8_0BlockBytes) {
        EncodeQ8_0Block(x + i, out);
      }
      return;
    case RowType::kQ4_0:
      for (size_t i = 0; i < row.size(); i += kBlockElements, out += kQ4_0BlockBytes) {
        EncodeQ4_0Block(x + i, out);
      }
      return;
  }
}

void DecodeRow(RowType type, std::span<const std::byte> stored, std::span<float> row) {
  CheckSizes(type, row.size(), stored.size());
  const std::byte* in = stored.data();
  float* x = row.data();
  switch (type) {
    case RowType::kF32:
      if (!row.empty()) std::memcpy(x, in, stored.size());
      return;
    case RowType::kF16:
      for (size_t i = 0; i < row.size(); ++i) x[i] = F32FromF16(LoadU16(in + 2 * i));
      return;
    case RowType::kQ8_0:
      for (size_t i = 0; i < row.size(); i += kBlockElements, in += kQ8_0BlockBytes) {
        DecodeQ8_0Block(in, x + i);
      }
      return;
    case RowType::kQ4_0:
      for (size_t i = 0; i < row.size(); i += kBlockElements, in += kQ4_0BlockBytes) {
        DecodeQ4_0Block(in, x + i);
      }
      return;
  }
}

}  // namespace lockstep
