#include "engine/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "caches/check.h"
#include "caches/codec.h"
#include "engine/kernels/bits.h"
#include "engine/kernels/quant_block.h"
#include "engine/kernels/quant_format.h"

namespace lockstep {
namespace {

using namespace internal;  // the form of quantized types, basic operations

// value / unit to the nearest integer of [least, most]; 0 where the unit is.
int32_t NearestInteger(float value, float unit, int32_t least, int32_t most) {
  if (unit == 0) return std::clamp(0, least, most);
  const float quotient =
      std::clamp(value / unit, static_cast<float>(least), static_cast<float>(most));
  return static_cast<int32_t>((quotient + kRoundMagic) - kRoundMagic);
}

// The element of the largest magnitude, the first of them.
float Extreme(std::span<const float> values) {
  float extreme = 0;
  for (const float value : values) {
    if (std::fabs(value) > std::fabs(extreme)) extreme = value;
  }
  return extreme;
}

// What a block would have if scales and lows were exact.
struct WantedScales {
  float scales[16];
  float lows[16];
};

WantedScales WantedOf(const QuantFormat& f, std::span<const float> block) {
  WantedScales wanted = {};
  const auto sub = static_cast<size_t>(f.sub_block);
  const auto largest_code = static_cast<float>((1 << f.lines()) - 1);
  for (size_t s = 0; s < block.size() / sub; ++s) {
    const auto values = block.subspan(s * sub, sub);
    if (!f.lows) {
      const float integer = f.table ? -127.0f : static_cast<float>(-f.bias);
      wanted.scales[s] = Extreme(values) / integer;
      continue;
    }
    const auto [smallest, largest] = std::ranges::minmax(values);
    wanted.lows[s] = f.super ? std::min(smallest, 0.0f) : smallest;
    wanted.scales[s] = (largest - wanted.lows[s]) / largest_code;
  }
  return wanted;
}

// The largest byte of a super-block's scales.
float LargestByte(GgmlType type) {
  switch (type) {
    case GgmlType::kQ2_K:
      return 15;
    case GgmlType::kQ6_K:
      return 127;
    case GgmlType::kQ3_K:
    case GgmlType::kIQ4_XS:
      return 31;
    default:
      return 63;
  }
}

// Rounds what is wanted to what the block can hold, and writes back what that is.
void RoundScales(GgmlType type, const QuantFormat& f, size_t subs, WantedScales* wanted,
                 QuantBlock* block) {
  if (!f.super) {
    block->scale = F16FromF32(wanted->scales[0]);
    block->low = F16FromF32(wanted->lows[0]);
    wanted->scales[0] = WidenF16(block->scale);
    wanted->lows[0] = WidenF16(block->low);
    return;
  }
  const float byte = LargestByte(type);
  block->scale = F16FromF32(std::fabs(Extreme({wanted->scales, subs})) / byte);
  block->low = F16FromF32(std::fabs(Extreme({wanted->lows, subs})) / byte);
  const float scale = WidenF16(block->scale), low = WidenF16(block->low);
  const auto most = static_cast<int32_t>(byte);
  for (size_t s = 0; s < subs; ++s) {
    const int32_t scale_byte = NearestInteger(wanted->scales[s], scale, -most, most);
    const int32_t low_byte = NearestInteger(-wanted->lows[s], low, 0, most);
    block->scales[s] = static_cast<int8_t>(scale_byte);
    block->lows[s] = static_cast<uint8_t>(low_byte);
    wanted->scales[s] = scale * static_cast<float>(scale_byte);
    wanted->lows[s] = -(low * static_cast<float>(low_byte));
  }
}

// The code whose integer is nearest to value / scale, the lowest of two.
int32_t NearestCode(const QuantFormat& f, float value, float scale) {
  const int32_t most = (1 << f.lines()) - 1;
  if (!f.table) return NearestInteger(value, scale, -f.bias, most - f.bias) + f.bias;
  const float wanted = scale == 0 ? 0.0f : value / scale;
  const auto distance = [&](int32_t code) {
    return std::fabs(wanted - static_cast<float>(kIq4Table[code] - f.bias));
  };
  int32_t nearest = 0;
  for (int32_t code = 1; code <= most; ++code) {
    if (distance(code) < distance(nearest)) nearest = code;
  }
  return nearest;
}

void QuantizeBlock(GgmlType type, std::span<const float> values, uint8_t* to) {
  const QuantFormat f = FormatOf(type);
  const auto sub = static_cast<size_t>(f.sub_block);
  WantedScales scales = WantedOf(f, values);
  QuantBlock block = {};
  RoundScales(type, f, values.size() / sub, &scales, &block);
  for (size_t i = 0; i < values.size(); ++i) {
    const float above_low = values[i] - scales.lows[i / sub];
    block.codes[i] = static_cast<uint8_t>(NearestCode(f, above_low, scales.scales[i / sub]));
  }
  WriteQuantBlock(type, block, to);
}

}  // namespace

void QuantizeWeights(GgmlType type, std::span<const float> row, std::span<std::byte> out) {
  const auto traits = TraitsOf(type);
  LS_CHECK(traits.has_value(), "weight type {}", static_cast<uint32_t>(type));
  const auto elements = static_cast<size_t>(traits->block_elements);
  const auto bytes = static_cast<size_t>(traits->block_bytes);
  LS_CHECK(row.size() % elements == 0 && out.size() == row.size() / elements * bytes,
           "{} elements of {} into {} bytes", row.size(), traits->name, out.size());
  switch (type) {
    case GgmlType::kF32:
      return EncodeRow(RowType::kF32, row, out);
    case GgmlType::kF16:
      return EncodeRow(RowType::kF16, row, out);
    case GgmlType::kBF16:
      return EncodeRow(RowType::kBf16, row, out);
    case GgmlType::kQ8_0:
      return EncodeRow(RowType::kQ8_0, row, out);
    case GgmlType::kQ4_0:
      return EncodeRow(RowType::kQ4_0, row, out);
    default:
      auto* to = reinterpret_cast<uint8_t*>(out.data());
      for (size_t i = 0; i < row.size(); i += elements, to += bytes) {
        QuantizeBlock(type, row.subspan(i, elements), to);
      }
  }
}

}  // namespace lockstep
