#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/kernels.h"
#include "engine/kernels/bits.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep {
namespace {

using namespace internal;  // constants of the layout, basic operations

GgmlTypeTraits LayoutOf(GgmlType type) {
  if (const auto traits = TraitsOf(type)) return *traits;
  throw Error({.where = fmt::format("weights of type id {}", static_cast<uint32_t>(type)),
               .what = "there are no kernels for this type",
               .remedy = "convert the model to F32, F16, BF16, Q8_0 or Q4_0"});
}

int64_t GroupBytes(GgmlType type, int64_t blocks) {
  if (type == GgmlType::kQ8_0) return QuantGroupBytes(kQ8Lines, blocks);
  if (type == GgmlType::kQ4_0) return QuantGroupBytes(kQ4Lines, blocks);
  return kRows * blocks * LayoutOf(type).block_bytes;
}

bool IsHalf(GgmlType type) { return type == GgmlType::kF16 || type == GgmlType::kBF16; }

// Block b of row r (0..15) into its place in the group.
void PackBlock(GgmlType type, const uint8_t* from, int64_t b, int32_t r, uint8_t* group) {
  if (type != GgmlType::kQ8_0 && type != GgmlType::kQ4_0) {
    const int64_t bytes = LayoutOf(type).block_bytes;
    std::memcpy(group + b * kLineBytes + r * bytes, from, static_cast<size_t>(bytes));
    return;
  }
  const bool q8 = type == GgmlType::kQ8_0;
  const int32_t line_count = q8 ? kQ8Lines : kQ4Lines;
  const uint32_t bias = q8 ? 0x80808080u : 0;  // q + 128
  std::memcpy(group + ScalesAt(line_count, b) + 2 * r, from, 2);
  uint8_t* lines = group + LinesAt(line_count, b) + 4 * r;
  for (int32_t i = 0; i < line_count; ++i) {
    uint32_t quants = 0;
    std::memcpy(&quants, from + 2 + 4 * i, 4);
    quants ^= bias;
    std::memcpy(lines + i * kLineBytes, &quants, 4);
  }
}

}  // namespace

PackedMatrix::PackedMatrix(GgmlType type, int32_t rows, int32_t cols,
                           std::span<const std::byte> data)
    : type_(type), rows_(rows), cols_(cols) {
  const GgmlTypeTraits layout = LayoutOf(type);
  LS_CHECK(rows > 0 && cols > 0, "matrix of {} x {}", rows, cols);
  if (cols % layout.block_elements != 0) {
    throw Error({.where = fmt::format("matrix of {} x {} weights", rows, cols),
                 .what = fmt::format("its rows are no whole blocks of {}", layout.block_elements),
                 .remedy = "convert this tensor to a float type"});
  }
  const int64_t blocks = cols / layout.block_elements;
  const int64_t row_bytes = blocks * layout.block_bytes;
  LS_CHECK(std::cmp_equal(data.size(), rows * row_bytes), "{} bytes for {} x {} of type {}",
           data.size(), rows, cols, static_cast<uint32_t>(type));
  group_bytes_ = GroupBytes(type, blocks);
  const int64_t stored_groups = StoredGroups(IsHalf(type), groups());
  storage_ = AlignedBuffer<std::byte>(stored_groups * group_bytes_);
  std::memset(storage_.data(), 0, storage_.size());  // padding rows: scale 0, so every product is 0
  auto* out = reinterpret_cast<uint8_t*>(storage_.data());
  const auto* in = reinterpret_cast<const uint8_t*>(data.data());
  for (int64_t row = 0; row < rows; ++row) {
    uint8_t* group = out + GroupAt(IsHalf(type), row / kRows, group_bytes_);
    for (int64_t b = 0; b < blocks; ++b) {
      PackBlock(type, in + row * row_bytes + b * layout.block_bytes, b,
                static_cast<int32_t>(row % kRows), group);
    }
  }
}

void DecodeWeights(GgmlType type, std::span<const std::byte> data, std::span<float> out) {
  const GgmlTypeTraits layout = LayoutOf(type);
  const auto block = static_cast<size_t>(layout.block_elements);
  const auto bytes = static_cast<size_t>(layout.block_bytes);
  LS_CHECK(out.size() % block == 0 && data.size() == out.size() / block * bytes,
           "{} bytes for {} weights of type {}", data.size(), out.size(),
           static_cast<uint32_t>(type));
  const auto* in = reinterpret_cast<const uint8_t*>(data.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const uint8_t* at = in + i / block * bytes;
    uint16_t half = 0;
    std::memcpy(&half, at, sizeof half);
    const size_t k = i % block;
    switch (type) {
      case GgmlType::kF32:
        std::memcpy(&out[i], at, sizeof(float));
        break;
      case GgmlType::kF16:
        out[i] = WidenF16(half);
        break;
      case GgmlType::kBF16:
        out[i] = WidenBF16(half);
        break;
      case GgmlType::kQ8_0:
        out[i] = static_cast<float>(static_cast<int8_t>(at[2 + k])) * WidenF16(half);
        break;
      case GgmlType::kQ4_0: {
        const int nibble = (k < 16 ? at[2 + k] : at[2 + k - 16] >> 4) & 15;
        out[i] = static_cast<float>(nibble - 8) * WidenF16(half);
        break;
      }
    }
  }
}

}  // namespace lockstep
