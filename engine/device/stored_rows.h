// Elements of cache rows as attention reads them, and which rows a query sees. For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_STORED_ROWS_H_
#define LOCKSTEP_ENGINE_DEVICE_STORED_ROWS_H_

#include <cstdint>

#include "caches/device_rows.h"
#include "engine/device/math.h"

namespace lockstep::device {

// Keys or values of a DeviceKvView.
struct StoredRows {
  RowType type;
  int32_t window;                    // 0: all rows are read encoded
  int64_t stride;                    // elements of a row
  Global<const uint8_t> bytes;       // [positions, the row's bytes]
  Global<const uint16_t> exact;      // binary16, [exact rows, stride]
  Global<const int32_t> exact_rows;  // [queries, window]
};

// The exact row in which query `query`, at `position`, reads row p; -1: it reads it encoded.
template <typename Indices>
LOCKSTEP_KERNEL int32_t ExactRow(const StoredRows& rows, const Indices& exact_rows, int64_t query,
                                 int32_t position, int32_t p) {
  if (rows.window == 0 || position - p >= rows.window) return -1;
  return exact_rows[query * rows.window + p % rows.window];
}

// Elements [element, element + 4) of row p. REQUIRES: `element` and the stride are multiples of 4.
template <RowType kType, typename Bytes>
LOCKSTEP_KERNEL Floats4 LoadStored4(const Bytes& bytes, int64_t stride, int64_t p,
                                    int64_t element) {
  const int64_t at = p * stride + element;
  Floats4 four = {};
  if constexpr (kType == RowType::kF32) {
    return bytes.template Load<Floats4>(at * 4);
  } else if constexpr (kType == RowType::kF16 || kType == RowType::kBf16) {
    const auto words = bytes.template Load<Words2>(at * 2);
    for (int32_t j = 0; j < 4; ++j) {
      const auto half = static_cast<uint16_t>(words.v[j / 2] >> (j % 2 * 16));
      four.v[j] = kType == RowType::kF16 ? WidenF16(half) : WidenBF16(half);
    }
  } else {
    // Blocks are aligned to 2 bytes.
    constexpr bool kQ8 = kType == RowType::kQ8_0;
    constexpr int64_t kBytes = kQ8 ? kQ8_0PieceBytes : kQ4_0PieceBytes;
    const int64_t block = at / kPieceElements * kBytes;
    const auto i = static_cast<int32_t>(element % kPieceElements);
    const int64_t codes = block + 2 + (kQ8 ? i : i % 16);
    const uint32_t low = bytes.template Load<uint16_t>(codes);
    const uint32_t word = low | static_cast<uint32_t>(bytes.template Load<uint16_t>(codes + 2))
                                    << 16;
    const float d = WidenF16(bytes.template Load<uint16_t>(block));
    for (int32_t j = 0; j < 4; ++j) {
      const uint32_t code = word >> (8 * j);
      const int32_t quant = kQ8 ? static_cast<int32_t>(static_cast<int8_t>(code))
                                : static_cast<int32_t>((i < 16 ? code : code >> 4) & 15u) - 8;
      four.v[j] = static_cast<float>(quant) * d;
    }
  }
  return four;
}

// The same for a run-time type.
template <typename Bytes>
LOCKSTEP_KERNEL Floats4 LoadStored4(RowType type, const Bytes& bytes, int64_t stride, int64_t p,
                                    int64_t element) {
  switch (type) {
    case RowType::kF32:
      return LoadStored4<RowType::kF32>(bytes, stride, p, element);
    case RowType::kF16:
      return LoadStored4<RowType::kF16>(bytes, stride, p, element);
    case RowType::kQ8_0:
      return LoadStored4<RowType::kQ8_0>(bytes, stride, p, element);
    case RowType::kBf16:
      return LoadStored4<RowType::kBf16>(bytes, stride, p, element);
    case RowType::kQ4_0:
      break;
  }
  return LoadStored4<RowType::kQ4_0>(bytes, stride, p, element);
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_STORED_ROWS_H_
