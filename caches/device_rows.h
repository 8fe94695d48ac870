// Rows of a cache as device kernels write and read them: caches/codec.h to the bit, in pieces of 32
// elements, so that one thread encodes one piece by itself. For nvcc too: no fmt, no standard
// containers.
//
// A row of kv_stride elements has RowPieces(kv_stride) pieces; those of a block format are its
// blocks, the last one of another row may be shorter. `rows` is what Block::Use gives for a
// Global<uint8_t> (to read: a Global<const uint8_t>), `row` the offset in bytes of the row's first
// byte: RowOffset(type, kv_stride, position). A row starts on a multiple of 2 bytes, one of F32 on
// a multiple of 4.
//
//   const auto rows = block.Use(args.keys);
//   block.template ForThreads<kThreads>([&](int32_t t) {
//     if (t >= device::RowPieces(kv_stride)) return;
//     device::EncodePiece(args.key_type, rows, row, t, device::PieceElements(kv_stride, t),
//                         [&](int32_t i) -> float { return shared.k[t * 32 + i]; });
//   });
#ifndef LOCKSTEP_CACHES_DEVICE_ROWS_H_
#define LOCKSTEP_CACHES_DEVICE_ROWS_H_

#include <cstdint>

#include "caches/device_kernel.h"
#include "caches/device_math.h"
#include "caches/row_type.h"

#if defined(__CUDACC__)
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_UNROLL
#endif

namespace lockstep::device {

inline constexpr int32_t kPieceElements = 32;
inline constexpr int64_t kQ8_0PieceBytes = 34;
inline constexpr int64_t kQ4_0PieceBytes = 18;

LOCKSTEP_KERNEL int64_t RowPieces(int64_t kv_stride) {
  return (kv_stride + kPieceElements - 1) / kPieceElements;
}
// Elements of one piece: 32, or what is left of the row.
LOCKSTEP_KERNEL int32_t PieceElements(int64_t kv_stride, int64_t piece) {
  const int64_t left = kv_stride - piece * kPieceElements;
  return left < kPieceElements ? static_cast<int32_t>(left) : kPieceElements;
}
// Bytes of a whole piece.
LOCKSTEP_KERNEL int64_t PieceBytes(RowType type) {
  switch (type) {
    case RowType::kF32:
      return int64_t{kPieceElements} * 4;
    case RowType::kF16:
    case RowType::kBf16:
      return int64_t{kPieceElements} * 2;
    case RowType::kQ8_0:
      return kQ8_0PieceBytes;
    case RowType::kQ4_0:
      break;
  }
  return kQ4_0PieceBytes;
}
// Of row `index` in rows without gaps, in bytes: index * RowBytes(type, kv_stride).
LOCKSTEP_KERNEL int64_t RowOffset(RowType type, int64_t kv_stride, int64_t index) {
  switch (type) {
    case RowType::kF32:
      return index * kv_stride * 4;
    case RowType::kF16:
    case RowType::kBf16:
      return index * kv_stride * 2;
    case RowType::kQ8_0:
    case RowType::kQ4_0:
      break;
  }
  return index * (kv_stride / kPieceElements) * PieceBytes(type);
}

// F16FromF32: to nearest even, every NaN as 0x7e00.
LOCKSTEP_KERNEL uint16_t NarrowF16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  // In [0.5, 1) the last place of binary32 is 2^-24, binary16's least: the sum rounds to it.
  const uint32_t subnormal = BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t kept = magnitude < 0x38800000u ? subnormal : normal;  // 2^-14
  kept = magnitude >= 0x47800000u ? 0x7c00u : kept;              // 65536 and more
  kept |= bits >> 16 & 0x8000u;
  return static_cast<uint16_t>(magnitude > 0x7f800000u ? 0x7e00u : kept);
}

// Bf16FromF32: to nearest even, every NaN as 0x7fc0.
LOCKSTEP_KERNEL uint16_t NarrowBF16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// To a type of two bytes an element.
LOCKSTEP_KERNEL uint16_t NarrowHalf(RowType type, float value) {
  return type == RowType::kBf16 ? NarrowBF16(value) : NarrowF16(value);
}

// The scale as codes are made from it, 0 for the zero block, whose F16 scale would be 0.
LOCKSTEP_KERNEL float UsableScale(float d) {
  const uint32_t magnitude = BitsOf(d) & 0x7fffffffu;
  if (magnitude <= 0x33000000u) return 0.0f;  // 2^-25
  if (magnitude < 0x477ff000u) return d;      // 65520: from here on F16 rounds to infinity
  return FloatOf((BitsOf(d) & 0x80000000u) | 0x477fe000u);  // 65504
}

// Writes a block's scale and says whether codes follow; else `zero_codes` are all of them.
template <typename Bytes>
LOCKSTEP_KERNEL bool StoreScale(const Bytes& rows, int64_t at, uint32_t magnitude, float d,
                                uint16_t zero_codes, int32_t code_bytes) {
  const bool finite = magnitude < 0x7f800000u;
  if (finite && d != 0.0f) {
    rows.template Store<uint16_t>(at, NarrowF16(d));
    return true;
  }
  rows.template Store<uint16_t>(at, static_cast<uint16_t>(finite ? 0u : 0x7e00u));
  for (int32_t i = 0; i < code_bytes; i += 2) {
    rows.template Store<uint16_t>(at + 2 + i, zero_codes);
  }
  return false;
}

// To the nearest integer in [-127, 127], ties away from zero.
LOCKSTEP_KERNEL uint32_t Q8_0Code(float scaled) {
  const float low = scaled > -127.0f ? scaled : -127.0f;
  const float x = low < 127.0f ? low : 127.0f;
  const auto truncated = static_cast<int32_t>(x);
  const float rest = x - static_cast<float>(truncated);  // exact
  const int32_t away = rest >= 0.5f ? 1 : rest <= -0.5f ? -1 : 0;
  return static_cast<uint32_t>(truncated + away) & 0xffu;
}

LOCKSTEP_KERNEL uint32_t Q4_0Code(float scaled) {
  const float shifted = scaled + 8.5f;
  const float low = shifted > 0.0f ? shifted : 0.0f;
  return static_cast<uint32_t>(static_cast<int32_t>(low < 15.0f ? low : 15.0f));
}

template <typename Bytes>
LOCKSTEP_KERNEL void EncodeQ8_0(const Bytes& rows, int64_t at, const float (&x)[kPieceElements]) {
  uint32_t top = 0;
  LOCKSTEP_UNROLL
  for (int32_t i = 0; i < kPieceElements; ++i) {
    const uint32_t magnitude = BitsOf(x[i]) & 0x7fffffffu;
    top = magnitude > top ? magnitude : top;
  }
  const float d = UsableScale(FloatOf(top) / 127.0f);
  if (!StoreScale(rows, at, top, d, 0, kPieceElements)) return;
  const float id = 1.0f / d;
  LOCKSTEP_UNROLL
  for (int32_t i = 0; i < kPieceElements; i += 2) {
    const uint32_t pair = Q8_0Code(x[i] * id) | Q8_0Code(x[i + 1] * id) << 8;
    rows.template Store<uint16_t>(at + 2 + i, static_cast<uint16_t>(pair));
  }
}

template <typename Bytes>
LOCKSTEP_KERNEL void EncodeQ4_0(const Bytes& rows, int64_t at, const float (&x)[kPieceElements]) {
  constexpr int32_t kHalf = kPieceElements / 2;
  uint32_t top = 0;
  float max = x[0];  // the first of the largest magnitude
  LOCKSTEP_UNROLL
  for (int32_t i = 0; i < kPieceElements; ++i) {
    const uint32_t magnitude = BitsOf(x[i]) & 0x7fffffffu;
    max = magnitude > top ? x[i] : max;
    top = magnitude > top ? magnitude : top;
  }
  const float d = UsableScale(max / -8.0f);
  if (!StoreScale(rows, at, top, d, 0x8888, kHalf)) return;  // code 8 stands for zero
  const float id = 1.0f / d;
  LOCKSTEP_UNROLL
  for (int32_t i = 0; i < kHalf; i += 2) {
    const uint32_t first = Q4_0Code(x[i] * id) | Q4_0Code(x[i + kHalf] * id) << 4;
    const uint32_t second = Q4_0Code(x[i + 1] * id) | Q4_0Code(x[i + 1 + kHalf] * id) << 4;
    rows.template Store<uint16_t>(at + 2 + i, static_cast<uint16_t>(first | second << 8));
  }
}

// Stores elements [32 * piece, 32 * piece + count) of a row: x(i) is the i-th of them, and is asked
// for once, in order. REQUIRES: count is PieceElements(kv_stride, piece).
template <typename Bytes, typename Element>
LOCKSTEP_KERNEL void EncodePiece(RowType type, const Bytes& rows, int64_t row, int64_t piece,
                                 int32_t count, const Element& x) {
  const int64_t at = row + piece * PieceBytes(type);
  if (type == RowType::kF32) {
    for (int32_t i = 0; i < count; ++i) {
      rows.template Store<uint32_t>(at + int64_t{i} * 4, BitsOf(x(i)));
    }
    return;
  }
  if (type == RowType::kF16 || type == RowType::kBf16) {
    for (int32_t i = 0; i < count; ++i) {
      rows.template Store<uint16_t>(at + int64_t{i} * 2, NarrowHalf(type, x(i)));
    }
    return;
  }
  float elements[kPieceElements];
  LOCKSTEP_UNROLL
  for (int32_t i = 0; i < kPieceElements; ++i) elements[i] = x(i);
  if (type == RowType::kQ8_0) {
    EncodeQ8_0(rows, at, elements);
  } else {
    EncodeQ4_0(rows, at, elements);
  }
}

// Element `i` of a row, as DecodeRow gives it (of a NaN: some NaN).
template <RowType kType, typename Bytes>
LOCKSTEP_KERNEL float LoadElement(const Bytes& rows, int64_t row, int64_t i) {
  if constexpr (kType == RowType::kF32) {
    return rows.template Load<float>(row + i * 4);
  } else if constexpr (kType == RowType::kF16) {
    return WidenF16(rows.template Load<uint16_t>(row + i * 2));
  } else if constexpr (kType == RowType::kBf16) {
    return WidenBF16(rows.template Load<uint16_t>(row + i * 2));
  } else {
    const int64_t block = row + i / kPieceElements * PieceBytes(kType);
    const auto j = static_cast<int32_t>(i % kPieceElements);
    const float d = WidenF16(rows.template Load<uint16_t>(block));
    if constexpr (kType == RowType::kQ8_0) {
      return static_cast<float>(rows.template Load<int8_t>(block + 2 + j)) * d;
    } else {
      constexpr int32_t kHalf = kPieceElements / 2;
      const uint32_t byte = rows.template Load<uint8_t>(block + 2 + j % kHalf);
      const auto code = static_cast<int32_t>((j < kHalf ? byte : byte >> 4) & 15u);
      return static_cast<float>(code - 8) * d;
    }
  }
}

// The same for a run-time type.
template <typename Bytes>
LOCKSTEP_KERNEL float LoadElement(RowType type, const Bytes& rows, int64_t row, int64_t i) {
  switch (type) {
    case RowType::kF32:
      return LoadElement<RowType::kF32>(rows, row, i);
    case RowType::kF16:
      return LoadElement<RowType::kF16>(rows, row, i);
    case RowType::kQ8_0:
      return LoadElement<RowType::kQ8_0>(rows, row, i);
    case RowType::kBf16:
      return LoadElement<RowType::kBf16>(rows, row, i);
    case RowType::kQ4_0:
      break;
  }
  return LoadElement<RowType::kQ4_0>(rows, row, i);
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_CACHES_DEVICE_ROWS_H_
