#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/gguf/types.h"
#include "engine/kernels.h"
#include "engine/kernels/bits.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/quant_block.h"
#include "engine/kernels/quant_format.h"

namespace lockstep {
namespace {

using namespace internal;  // constants of the layout, basic operations

GgmlTypeTraits LayoutOf(GgmlType type) {
  if (const auto traits = TraitsOf(type)) return *traits;
  throw Error({.where = fmt::format("weights of type id {}", static_cast<uint32_t>(type)),
               .what = "there are no kernels for this type",
               .remedy = std::string(kSupportedTypesRemedy)});
}

// Bytes of a group of `blocks` blocks as the type counts them.
int64_t GroupBytes(GgmlType type, int64_t blocks) {
  const GgmlTypeTraits layout = LayoutOf(type);
  if (!IsQuantized(type)) return kRows * blocks * layout.block_bytes;
  return QuantGroupBytes(FormatOf(type), blocks * layout.block_elements / kBlock);
}

bool IsHalf(GgmlType type) { return type == GgmlType::kF16 || type == GgmlType::kBF16; }

void PutWord(uint32_t word, uint8_t* to) { std::memcpy(to, &word, sizeof word); }

// The codes of one row's block of 32 into its lines; `lines` points at the row in the first.
void PackCodes(const QuantFormat& f, const uint8_t* codes, uint8_t* lines) {
  uint32_t words[kBlock / 4];  // k = 4 i + j in byte j of word i
  std::memcpy(words, codes, sizeof words);
  const auto two_bits = [&](int32_t shift, uint8_t* to) {
    for (int32_t i = 0; i < 2; ++i, to += kLineBytes) {
      uint32_t word = 0;
      for (int32_t m = 0; m < 4; ++m) word |= (words[4 * i + m] >> shift & 0x03030303u) << 2 * m;
      PutWord(word, to);
    }
  };
  switch (f.low_bits) {
    case 8:
      for (int32_t i = 0; i < 8; ++i) PutWord(words[i], lines + i * kLineBytes);
      break;
    case 4:
      for (int32_t i = 0; i < 4; ++i) {
        PutWord((words[i] & 0x0f0f0f0fu) | (words[i + 4] & 0x0f0f0f0fu) << 4,
                lines + i * kLineBytes);
      }
      break;
    default:
      two_bits(0, lines);
  }
  uint8_t* high = lines + f.low_bits * kLineBytes;
  if (f.high_bits == 2) two_bits(f.low_bits, high);
  if (f.high_bits == 1) {
    uint32_t word = 0;
    for (int32_t m = 0; m < 8; ++m) word |= (words[m] >> f.low_bits & 0x01010101u) << m;
    PutWord(word, high);
  }
}

// Block b, of 32, of row r, which is the `part`-th of the stored one: into its place in the group.
void PackBlockOf32(const QuantFormat& f, const QuantBlock& block, int32_t part, int64_t b,
                   int32_t r, uint8_t* group) {
  PackCodes(f, block.codes + part * kBlock, group + CodesAt(f, b) + 4 * r);
  uint8_t* scales = group + BlockScalesAt(f, b);
  uint8_t* halves = f.super ? group + UnitAt(f, b) : scales;
  std::memcpy(halves + 2 * r, &block.scale, 2);
  if (f.lows) std::memcpy(halves + kScaleBytes + 2 * r, &block.low, 2);
  if (!f.super) return;
  for (int32_t i = 0; i < f.subs(); ++i) {
    const int32_t s = part * f.subs() + i;
    auto scale = static_cast<uint8_t>(block.scales[s]);
    if (f.nibbles) scale = static_cast<uint8_t>(scale | block.lows[s] << 4);
    scales[kRows * i + r] = scale;
    if (f.lows && !f.nibbles) scales[kRows * (f.subs() + i) + r] = block.lows[s];
  }
}

// A block of Q8_0 or Q4_0 without taking it apart: its words are those of the lines.
void CopyBlock(GgmlType type, const uint8_t* from, int64_t b, int32_t r, uint8_t* group) {
  const QuantFormat f = FormatOf(type);
  const uint32_t flip = type == GgmlType::kQ8_0 ? 0x80808080u : 0;
  std::memcpy(group + BlockScalesAt(f, b) + 2 * r, from, 2);
  uint8_t* lines = group + CodesAt(f, b) + 4 * r;
  for (int32_t i = 0; i < f.lines(); ++i) {
    uint32_t word = 0;
    std::memcpy(&word, from + 2 + 4 * i, 4);
    PutWord(word ^ flip, lines + i * kLineBytes);
  }
}

// Stored block b of row r (0..15) into its place in the group.
void PackBlock(GgmlType type, const uint8_t* from, int64_t b, int32_t r, uint8_t* group) {
  if (!IsQuantized(type)) {
    const int64_t bytes = LayoutOf(type).block_bytes;
    std::memcpy(group + b * kLineBytes + r * bytes, from, static_cast<size_t>(bytes));
    return;
  }
  if (type == GgmlType::kQ8_0 || type == GgmlType::kQ4_0) {
    return CopyBlock(type, from, b, r, group);
  }
  const QuantFormat f = FormatOf(type);
  QuantBlock block;
  ReadQuantBlock(type, from, &block);
  const int32_t parts = f.super ? kBlocksPerSegment : 1;
  for (int32_t part = 0; part < parts; ++part) {
    PackBlockOf32(f, block, part, b * parts + part, r, group);
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
  if (IsQuantized(type)) {
    QuantBlock taken_apart;
    for (size_t i = 0; i < out.size(); i += block, in += bytes) {
      ReadQuantBlock(type, in, &taken_apart);
      DecodeQuantBlock(type, taken_apart, &out[i]);
    }
    return;
  }
  for (size_t i = 0; i < out.size(); ++i, in += bytes) {
    uint16_t half = 0;
    std::memcpy(&half, in, sizeof half);
    if (type == GgmlType::kF32) {
      std::memcpy(&out[i], in, sizeof(float));
    } else {
      out[i] = type == GgmlType::kF16 ? WidenF16(half) : WidenBF16(half);
    }
  }
}

}  // namespace lockstep
