// Kernels that write rows of a cache: encode rows of floats, make rows those of a gap, move exact
// rows. What changes from call to call is passed by value, so nothing has to be uploaded for them.
// For nvcc too: no fmt, no standard containers.
#ifndef LOCKSTEP_CACHES_DEVICE_ROW_KERNELS_H_
#define LOCKSTEP_CACHES_DEVICE_ROW_KERNELS_H_

#include <cstdint>

#include "caches/device_kernel.h"
#include "caches/device_rows.h"
#include "caches/row_type.h"

namespace lockstep::device {

// Rows that one launch takes.
inline constexpr int32_t kRowsOfLaunch = 48;

// K or V of one layer.
struct LayerHalf {
  RowType type = RowType::kF32;
  Global<uint8_t> rows;    // [max_length, RowBytes(type, kv_stride)]
  Global<uint16_t> exact;  // binary16, [exact rows, kv_stride]; empty without a window
};

// Row i of the floats is encoded into row positions[i], and with a window rounded into exact row
// exact_first + i. Block (i, 0) does so with keys, (i, 1) with values.
struct StoreRowsKernel {
  static constexpr char kName[] = "store_rows";
  static constexpr int32_t kThreads = 32;
  struct Args {
    int64_t kv_stride;
    LayerHalf halves[2];
    Global<const float> x[2];  // [rows, kv_stride]
    int64_t exact_first;
    int32_t positions[kRowsOfLaunch];  // -1: another row of the launch takes the position
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const LayerHalf& half = args.halves[block.y()];
    const int64_t stride = args.kv_stride;
    const int32_t position = args.positions[block.x()];
    const auto x = block.Use(args.x[block.y()]);
    const auto rows = block.Use(half.rows);
    const auto exact = block.Use(half.exact);
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int64_t piece = t; piece < RowPieces(stride); piece += kThreads) {
        const int64_t first = block.x() * stride + piece * kPieceElements;
        const int32_t count = PieceElements(stride, piece);
        if (position >= 0) {
          EncodePiece(half.type, rows, RowOffset(half.type, stride, position), piece, count,
                      [&](int32_t i) -> float { return x[first + i]; });
        }
        if (exact.size() == 0) continue;
        const int64_t to = (args.exact_first + block.x()) * stride + piece * kPieceElements;
        for (int32_t i = 0; i < count; ++i) {
          const float value = x[first + i];
          exact[to + i] = NarrowF16(value);
        }
      }
    });
  }
};

// Makes rows first, first + 1, ... those of zeros, a block for each and half.
struct ZeroRowsKernel {
  static constexpr char kName[] = "zero_rows";
  static constexpr int32_t kThreads = 32;
  struct Args {
    int64_t kv_stride;
    LayerHalf halves[2];
    int64_t first;
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const LayerHalf& half = args.halves[block.y()];
    const int64_t stride = args.kv_stride;
    const auto rows = block.Use(half.rows);
    const int64_t row = RowOffset(half.type, stride, args.first + block.x());
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int64_t piece = t; piece < RowPieces(stride); piece += kThreads) {
        EncodePiece(half.type, rows, row, piece, PieceElements(stride, piece),
                    [](int32_t) -> float { return 0.0f; });
      }
    });
  }
};

// Copies exact row from[i] to exact row to[i], of keys in block (i, 0), of values in (i, 1). No row
// is in both lists.
struct MoveRowsKernel {
  static constexpr char kName[] = "move_rows";
  static constexpr int32_t kThreads = 64;
  struct Args {
    int64_t kv_stride;
    Global<uint16_t> exact[2];
    int32_t from[kRowsOfLaunch];
    int32_t to[kRowsOfLaunch];
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto exact = block.Use(args.exact[block.y()]);
    const int64_t from = args.from[block.x()] * args.kv_stride;
    const int64_t to = args.to[block.x()] * args.kv_stride;
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int64_t i = t; i < args.kv_stride; i += kThreads) {
        const uint16_t half = exact[from + i];
        exact[to + i] = half;
      }
    });
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_CACHES_DEVICE_ROW_KERNELS_H_
