#include "caches/codec.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "caches/check.h"

namespace lockstep {
namespace {

constexpr uint16_t kF16Nan = 0x7e00;
constexpr uint16_t kBf16Nan = 0x7fc0;
constexpr float kF16Max = 65504.0f;
constexpr float kF16Overflow = 65520.0f;           // from here on binary16 rounds to infinity
constexpr float kF16Underflow = 1.0f / (1 << 25);  // up to here binary16 rounds to zero

// By masks: compilers make a branch of `condition ? a : b`, and no vector code of the branch.
uint32_t Select(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

void StoreU16(std::byte* at, uint16_t value) { std::memcpy(at, &value, sizeof(value)); }

uint16_t LoadU16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// The loops below compute every case and select, so that they become vector code.

// Bits of the largest magnitude: ordered as the values are, infinity and NaN last.
uint32_t LargestMagnitude(const float* x) {
  uint32_t top = 0;
  for (int64_t i = 0; i < kBlockElements; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    top = magnitude > top ? magnitude : top;
  }
  return top;
}

constexpr uint32_t kInfinity = 0x7f800000u;  // from here on a magnitude is not finite

// The first element of that magnitude.
float FirstOf(const float* x, uint32_t magnitude) {
  int32_t first = kBlockElements - 1;
  for (int32_t i = 0; i < kBlockElements; ++i) {
    const bool found = (std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu) == magnitude;
    const int32_t at = found ? i : kBlockElements - 1;
    first = at < first ? at : first;
  }
  return x[first];
}

// The scale as codes are made from it, 0 for the zero block.
float UsableScale(float d) {
  if (std::fabs(d) <= kF16Underflow) return 0.0f;
  return std::fabs(d) >= kF16Overflow ? std::copysign(kF16Max, d) : d;
}

// To the nearest integer, ties away from zero. REQUIRES: |x| below 2^31.
int32_t RoundAway(float x) {
  const auto truncated = static_cast<int32_t>(x);
  const float rest = x - static_cast<float>(truncated);  // exact
  const auto bits = std::bit_cast<int32_t>(rest);
  const int32_t sign = bits >> 31;                                     // -1 or 0
  const int32_t up = ~(((bits & 0x7fffffff) - 0x3f000000) >> 31) & 1;  // 1: |rest| >= 0.5
  return truncated + ((up ^ sign) - sign);
}

int32_t Q4_0Code(float scaled) {
  const float shifted = scaled + 8.5f;
  const float low = shifted > 0.0f ? shifted : 0.0f;
  return static_cast<int32_t>(low < 15.0f ? low : 15.0f);
}

// Writes the scale and says whether codes follow; a zero or NaN block is written whole.
bool StoreScale(uint32_t magnitude, float d, int zero_codes, int64_t code_bytes, std::byte* block) {
  const bool finite = magnitude < kInfinity;
  if (finite && d != 0.0f) {
    StoreU16(block, F16FromF32(d));
    return true;
  }
  StoreU16(block, finite ? 0 : kF16Nan);
  std::memset(block + 2, zero_codes, static_cast<size_t>(code_bytes));
  return false;
}

void EncodeQ8_0Block(const float* x, std::byte* block) {
  const uint32_t top = LargestMagnitude(x);
  const float d = UsableScale(std::bit_cast<float>(top) / 127.0f);
  if (!StoreScale(top, d, 0, kBlockElements, block)) return;
  const float id = 1.0f / d;
  float scaled[kBlockElements];  // clamped: no float outside int is ever converted
  for (int64_t i = 0; i < kBlockElements; ++i) {
    const float low = x[i] * id > -127.0f ? x[i] * id : -127.0f;
    scaled[i] = low < 127.0f ? low : 127.0f;
  }
  int8_t codes[kBlockElements];
  for (int64_t i = 0; i < kBlockElements; ++i) codes[i] = static_cast<int8_t>(RoundAway(scaled[i]));
  std::memcpy(block + 2, codes, sizeof codes);
}

void EncodeQ4_0Block(const float* x, std::byte* block) {
  constexpr int64_t kHalf = kBlockElements / 2;
  const uint32_t top = LargestMagnitude(x);
  const float d = UsableScale(FirstOf(x, top) / -8.0f);
  if (!StoreScale(top, d, 0x88, kHalf, block)) return;  // code 8 stands for zero
  const float id = 1.0f / d;
  uint8_t codes[kHalf];
  for (int64_t i = 0; i < kHalf; ++i) {
    codes[i] = static_cast<uint8_t>(Q4_0Code(x[i] * id) | Q4_0Code(x[i + kHalf] * id) << 4);
  }
  std::memcpy(block + 2, codes, sizeof codes);
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
  uint32_t kept = Select(magnitude < 0x38800000u, subnormal, normal);  // 2^-14
  kept = Select(magnitude >= 0x47800000u, 0x7c00u, kept);              // 65536 and more
  kept |= bits >> 16 & 0x8000u;
  return static_cast<uint16_t>(Select(magnitude > 0x7f800000u, kF16Nan, kept));
}

float F32FromF16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  // Zero or a multiple of 2^-24, exact in F32.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  uint32_t wide = Select(magnitude < 0x400u, subnormal, normal);
  wide = Select(magnitude >= 0x7c00u, 0x7f800000u, wide);
  wide |= static_cast<uint32_t>(bits & 0x8000u) << 16;
  return std::bit_cast<float>(Select(magnitude > 0x7c00u, 0x7fc00000u, wide));
}

uint16_t Bf16FromF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // A carry out of the mantissa moves into the exponent, as in F16FromF32; no number's sum reaches
  // the sign.
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>(Select((bits & 0x7fffffffu) > kInfinity, kBf16Nan, rounded));
}

float F32FromBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  return std::bit_cast<float>(Select((bits & 0x7fffu) > 0x7f80u, 0x7fc00000u, wide));
}

namespace {

template <uint16_t (&kNarrow)(float)>
void EncodeHalves(const float* x, size_t count, uint8_t* out) {
  constexpr size_t kAtOnce = 32;
  uint16_t halves[kAtOnce];
  for (; count >= kAtOnce; count -= kAtOnce, x += kAtOnce, out += 2 * kAtOnce) {
    for (size_t i = 0; i < kAtOnce; ++i) halves[i] = kNarrow(x[i]);
    std::memcpy(out, halves, sizeof halves);
  }
  for (size_t i = 0; i < count; ++i) halves[i] = kNarrow(x[i]);
  std::memcpy(out, halves, 2 * count);
}

template <float (&kWiden)(uint16_t)>
void DecodeHalves(const uint8_t* in, size_t count, float* x) {
  constexpr size_t kAtOnce = 32;
  uint16_t halves[kAtOnce];
  for (; count >= kAtOnce; count -= kAtOnce, x += kAtOnce, in += 2 * kAtOnce) {
    std::memcpy(halves, in, sizeof halves);
    for (size_t i = 0; i < kAtOnce; ++i) x[i] = kWiden(halves[i]);
  }
  std::memcpy(halves, in, 2 * count);
  for (size_t i = 0; i < count; ++i) x[i] = kWiden(halves[i]);
}

}  // namespace

void EncodeRow(RowType type, std::span<const float> row, std::span<std::byte> stored) {
  CheckSizes(type, row.size(), stored.size());
  const float* x = row.data();
  std::byte* out = stored.data();
  switch (type) {
    case RowType::kF32:
      if (!row.empty()) std::memcpy(out, x, stored.size());
      return;
    case RowType::kF16:
      EncodeHalves<F16FromF32>(x, row.size(), reinterpret_cast<uint8_t*>(out));
      return;
    case RowType::kBf16:
      EncodeHalves<Bf16FromF32>(x, row.size(), reinterpret_cast<uint8_t*>(out));
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
      DecodeHalves<F32FromF16>(reinterpret_cast<const uint8_t*>(in), row.size(), x);
      return;
    case RowType::kBf16:
      DecodeHalves<F32FromBf16>(reinterpret_cast<const uint8_t*>(in), row.size(), x);
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
