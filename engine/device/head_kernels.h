// What happens to the heads of projected rows: QK-norm, RoPE, and for K and V the way into a cache.
// For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_HEAD_KERNELS_H_
#define LOCKSTEP_ENGINE_DEVICE_HEAD_KERNELS_H_

#include <cstdint>

#include "caches/device_rows.h"
#include "engine/device/limits.h"
#include "engine/device/reduce.h"

namespace lockstep::device {

constexpr int32_t kHeadThreads = 128;

struct HeadArgs {
  int32_t heads;
  int32_t head_dim;
  int32_t rope_dim;  // 0: not rotated
  int32_t halves;
  float eps;
  Global<const float> norm;  // [head_dim], or empty
  Global<const float> cos;   // [positions, rope_dim / 2]
  Global<const float> sin;
  Global<const int32_t> positions;  // [rows]
  Global<const float> x;            // [rows, heads * head_dim]
};

template <typename Block>
struct HeadShared {
  SharedArray<Block, float, kHeadDimMax> x;
  SharedArray<Block, float, kTreeLanes> lanes;
};

// Head block.x() of row block.y(), normed and turned, into shared.x.
template <typename Block>
LOCKSTEP_KERNEL void FinishHead(const Block& block, const HeadArgs& args,
                                HeadShared<Block>& shared) {
  const auto x = block.Use(args.x);
  const auto norm = block.Use(args.norm);
  const int64_t first = (block.y() * int64_t{args.heads} + block.x()) * args.head_dim;
  block.template ForThreads<kHeadThreads>([&](int32_t t) {
    for (int32_t i = t; i < args.head_dim; i += kHeadThreads) shared.x[i] = x[first + i];
  });
  if (norm.size() > 0) {
    block.template ForThreads<kHeadThreads>([&](int32_t t) {
      if (t >= kTreeLanes) return;
      float acc = 0.0f;
      for (int32_t i = t; i < args.head_dim; i += kTreeLanes) {
        const float value = shared.x[i];
        acc = Fma(value, value, acc);
      }
      shared.lanes[t] = acc;
    });
    block.template ForThreads<kHeadThreads>([&](int32_t t) {
      const float mean = SumLanes(shared.lanes) / static_cast<float>(args.head_dim);
      const float r = 1.0f / SquareRoot(mean + args.eps);
      for (int32_t i = t; i < args.head_dim; i += kHeadThreads) {
        shared.x[i] = (shared.x[i] * r) * norm[i];
      }
    });
  }
  if (args.rope_dim == 0) return;
  const auto cos = block.Use(args.cos);
  const auto sin = block.Use(args.sin);
  const auto positions = block.Use(args.positions);
  block.template ForThreads<kHeadThreads>([&](int32_t t) {
    const int32_t half = args.rope_dim / 2;
    if (t >= half) return;
    const int64_t angle = int64_t{positions[block.y()]} * half + t;
    const float c = cos[angle];
    const float s = sin[angle];
    const int32_t i = args.halves != 0 ? t : 2 * t;
    const int32_t j = args.halves != 0 ? t + half : 2 * t + 1;
    const float a = shared.x[i];
    const float b = shared.x[j];
    shared.x[i] = Fma(a, c, -(b * s));
    shared.x[j] = Fma(a, s, b * c);
  });
}

// Grid: [heads, rows].
struct FinishQueryKernel {
  static constexpr char kName[] = "finish_query";
  static constexpr int32_t kThreads = kHeadThreads;
  struct Args {
    HeadArgs head;
    Global<float> out;  // head.x
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    auto& shared = block.template Shared<HeadShared<Block>>();
    FinishHead(block, args.head, shared);
    const auto out = block.Use(args.out);
    const int32_t dim = args.head.head_dim;
    const int64_t first = (block.y() * int64_t{args.head.heads} + block.x()) * dim;
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int32_t i = t; i < dim; i += kThreads) out[first + i] = shared.x[i];
    });
  }
};

// Grid: [heads, rows]. One thread encodes 32 elements of the head, which are a block.
struct StoreHeadsKernel {
  static constexpr char kName[] = "store_heads";
  static constexpr int32_t kThreads = kHeadThreads;
  struct Args {
    HeadArgs head;  // of values: no norm, no RoPE
    RowType type;
    Global<uint8_t> stored;             // [positions, the row's bytes]
    Global<const int32_t> exact_first;  // [1], or empty
    Global<uint16_t> exact;             // [rows, kv_stride], or empty
    Global<float> rows;                 // [rows, kv_stride], or empty
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    auto& shared = block.template Shared<HeadShared<Block>>();
    FinishHead(block, args.head, shared);
    const auto stored = block.Use(args.stored);
    const auto positions = block.Use(args.head.positions);
    const auto exact_first = block.Use(args.exact_first);
    const auto exact = block.Use(args.exact);
    const auto rows = block.Use(args.rows);
    const int32_t dim = args.head.head_dim;
    const int64_t stride = int64_t{args.head.heads} * dim;
    const int64_t element = int64_t{block.x()} * dim;
    block.template ForThreads<kThreads>([&](int32_t t) {
      const int32_t position = positions[block.y()];
      const int64_t row = RowOffset(args.type, stride, position);
      EncodePart(args.type, stored, row, element, dim, t, shared);
      for (int32_t i = t; exact.size() > 0 && i < dim; i += kThreads) {
        const int64_t at = (int64_t{exact_first[0]} + block.y()) * stride + element + i;
        exact[at] = NarrowF16(shared.x[i]);
      }
      for (int32_t i = t; rows.size() > 0 && i < dim; i += kThreads) {
        rows[block.y() * stride + element + i] = shared.x[i];
      }
    });
  }

 private:
  // Floats and halves element by element, block formats a block a thread.
  template <typename Bytes, typename Shared>
  LOCKSTEP_KERNEL static void EncodePart(RowType type, const Bytes& stored, int64_t row,
                                         int64_t element, int32_t dim, int32_t t, Shared& shared) {
    if (type == RowType::kF32 || type == RowType::kF16 || type == RowType::kBf16) {
      for (int32_t i = t; i < dim; i += kThreads) {
        const float value = shared.x[i];
        if (type == RowType::kF32) {
          stored.template Store<float>(row + (element + i) * 4, value);
        } else {
          stored.template Store<uint16_t>(row + (element + i) * 2, NarrowHalf(type, value));
        }
      }
      return;
    }
    if (t >= dim / kPieceElements) return;
    EncodePiece(type, stored, row, element / kPieceElements + t, kPieceElements,
                [&](int32_t i) -> float { return shared.x[t * kPieceElements + i]; });
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_HEAD_KERNELS_H_
