#include <fmt/format.h>

#include <algorithm>
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

// Blocks of a row. Throws Error when there is no whole number of them.
int64_t BlocksOf(GgmlType type, int32_t rows, int32_t cols) {
  const GgmlTypeTraits layout = LayoutOf(type);
  LS_CHECK(rows > 0 && cols > 0, "matrix of {} x {}", rows, cols);
  if (cols % layout.block_elements != 0) {
    throw Error({.where = fmt::format("matrix of {} x {} weights", rows, cols),
                 .what = fmt::format("its rows are no whole blocks of {}", layout.block_elements),
                 .remedy = "convert this tensor to a float type"});
  }
  return cols / layout.block_elements;
}

}  // namespace

int64_t PackedMatrix::PackedBytes(GgmlType type, int32_t rows, int32_t cols) {
  const int64_t blocks = BlocksOf(type, rows, cols);
  const int64_t groups = (int64_t{rows} + kRows - 1) / kRows;
  return StoredGroups(IsHalf(type), groups) * GroupBytes(type, blocks);
}

PackedMatrix PackedMatrix::Over(std::span<std::byte> memory, GgmlType type, int32_t rows,
                                int32_t cols) {
  PackedMatrix matrix;
  const int64_t bytes = PackedBytes(type, rows, cols);
  LS_CHECK(std::cmp_equal(memory.size(), bytes), "{} bytes for a matrix of {}", memory.size(),
           bytes);
  LS_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kLineBytes == 0, "memory at {}",
           static_cast<const void*>(memory.data()));
  matrix.type_ = type;
  matrix.rows_ = rows;
  matrix.cols_ = cols;
  matrix.group_bytes_ = GroupBytes(type, BlocksOf(type, rows, cols));
  matrix.data_ = memory.data();
  return matrix;
}

PackedMatrix::PackedMatrix(GgmlType type, int32_t rows, int32_t cols,
                           std::span<const std::byte> data) {
  AlignedBuffer<std::byte> storage(PackedBytes(type, rows, cols));
  *this = Over(storage.span(), type, rows, cols);
  storage_ = std::move(storage);
  Pack(data, 0, groups());
}

void PackedMatrix::Pack(std::span<const std::byte> data, int32_t group_begin, int32_t group_end) {
  const GgmlTypeTraits layout = LayoutOf(type_);
  const int64_t blocks = cols_ / layout.block_elements;
  const int64_t row_bytes = blocks * layout.block_bytes;
  LS_CHECK(std::cmp_equal(data.size(), rows_ * row_bytes), "{} bytes for {} x {} of type {}",
           data.size(), rows_, cols_, static_cast<uint32_t>(type_));
  LS_CHECK(group_begin >= 0 && group_begin % kPackGroups == 0 && group_end <= groups() &&
               (group_end % kPackGroups == 0 || group_end == groups()),
           "groups [{}, {}) of {}", group_begin, group_end, groups());
  const auto* in = reinterpret_cast<const uint8_t*>(data.data());
  const bool half = IsHalf(type_);
  for (int32_t pair = group_begin; pair < group_end; pair += kPackGroups) {
    // Padding rows and groups: scale 0, so every product is 0.
    const int64_t stored = std::min(StoredGroups(half, groups()), int64_t{pair} + kPackGroups);
    std::memset(data_ + pair * group_bytes_, 0,
                static_cast<size_t>((stored - pair) * group_bytes_));
    const int32_t row_end = std::min(rows_, (pair + kPackGroups) * kRows);
    for (int32_t row = pair * kRows; row < row_end; ++row) {
      auto* group = reinterpret_cast<uint8_t*>(data_) + GroupAt(half, row / kRows, group_bytes_);
      for (int64_t b = 0; b < blocks; ++b) {
        PackBlock(type_, in + row * row_bytes + b * layout.block_bytes, b, row % kRows, group);
      }
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
