// Small kernels that keep the model, for the tests of devices.
#ifndef LOCKSTEP_CACHES_DEVICE_TEST_KERNELS_H_
#define LOCKSTEP_CACHES_DEVICE_TEST_KERNELS_H_

#include "caches/device_kernel.h"
#include "caches/device_rows.h"

namespace lockstep {

// Sums of 32 elements by halving, a barrier after each step.
struct BlockSumKernel {
  static constexpr char kName[] = "block_sum";
  static constexpr int32_t kThreads = 32;
  struct Args {
    Global<const int32_t> x;
    Global<int32_t> sums;
  };
  template <typename Block>
  struct SharedOf {
    SharedArray<Block, int32_t, kThreads> partial;
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto x = block.Use(args.x);
    const auto sums = block.Use(args.sums);
    auto& shared = block.template Shared<SharedOf<Block>>();
    block.template ForThreads<kThreads>(
        [&](int32_t t) { shared.partial[t] = x[block.x() * int64_t{kThreads} + t]; });
    for (int32_t width = kThreads / 2; width > 0; width /= 2) {
      block.template ForThreads<kThreads>([&](int32_t t) {
        if (t < width) shared.partial[t] = shared.partial[t] + shared.partial[t + width];
      });
    }
    block.template ForThreads<kThreads>([&](int32_t t) {
      if (t == 0) sums[block.x()] = shared.partial[0];
    });
  }
};
// Writes a value to the element whose index lies in device memory, a block for each of some rows.
struct PutKernel {
  static constexpr char kName[] = "put";
  static constexpr int32_t kThreads = 1;
  struct Args {
    Global<const int32_t> position;  // 1
    int32_t offset = 0;              // added to it
    int32_t value = 0;
    Global<int32_t> y;  // a launch of more blocks than elements is out of bounds
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto position = block.Use(args.position);
    const auto y = block.Use(args.y);
    block.template ForThreads<kThreads>([&](int32_t) {
      const int64_t at = position[0] + args.offset + block.x();
      y[at] = y[at] + args.value;
    });
  }
};

// A block of threads for each row, a thread for each piece of it.
struct EncodeRowsKernel {
  static constexpr char kName[] = "encode_rows";
  static constexpr int32_t kThreads = 8;
  struct Args {
    RowType type;
    int64_t stride;
    Global<const float> x;
    Global<uint8_t> rows;
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto x = block.Use(args.x);
    const auto rows = block.Use(args.rows);
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int64_t p = t; p < device::RowPieces(args.stride); p += kThreads) {
        const int64_t first = block.x() * args.stride + p * device::kPieceElements;
        device::EncodePiece(args.type, rows, device::RowOffset(args.type, args.stride, block.x()),
                            p, device::PieceElements(args.stride, p),
                            [&](int32_t i) -> float { return x[first + i]; });
      }
    });
  }
};

struct DecodeRowsKernel {
  static constexpr char kName[] = "decode_rows";
  static constexpr int32_t kThreads = 32;
  struct Args {
    RowType type;
    int64_t stride;
    Global<const uint8_t> rows;
    Global<float> x;
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto x = block.Use(args.x);
    const auto rows = block.Use(args.rows);
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int64_t i = t; i < args.stride; i += kThreads) {
        x[block.x() * args.stride + i] = device::LoadElement(
            args.type, rows, device::RowOffset(args.type, args.stride, block.x()), i);
      }
    });
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_TEST_KERNELS_H_
