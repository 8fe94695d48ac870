// Weighted values of attention: a partial sum for each segment of 256 positions, then their sum in
// order over the softmax's. For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_VALUE_KERNELS_H_
#define LOCKSTEP_ENGINE_DEVICE_VALUE_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "engine/device/attention_shape.h"

namespace lockstep::device {

struct ValueArgs {
  AttentionPlan plan;
  StoredRows values;
  Global<const float> weights;  // [queries, heads, score_stride]
  Global<float> partials;       // [queries, heads, segments, head_dim]
};

// Heads of at most kDim elements. Grid: [segments, KV heads, query tiles]. A thread has one element
// of some rows and goes through the positions.
template <int32_t kDim>
struct ValueKernel {
  static constexpr const char* kName = kDim == 64    ? "attention_values_64"
                                       : kDim == 128 ? "attention_values_128"
                                                     : "attention_values_256";
  static constexpr int32_t kThreads = 256;
  static constexpr int32_t kThreadRows = kRowsAtOnce * kDim / kThreads;
  using Args = ValueArgs;

  template <typename Block>
  struct SharedOf {
    SharedArray<Block, float, kRowsAtOnce * kAttentionSegment> weights;  // [row, position]
  };

  // What one thread works on.
  struct Work {
    int32_t begin;  // the segment's first position
    int32_t first;  // positions of it that some row sees
    int32_t end;
    int64_t element;
    int32_t row;                                        // the first of its rows in shared memory
    int32_t from[static_cast<size_t>(kThreadRows)];     // the first position that a row sees
    int32_t visible[static_cast<size_t>(kThreadRows)];  // behind the last; 0: no such row
    float acc[static_cast<size_t>(kThreadRows)];
  };

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto positions = block.Use(args.plan.positions);
    const RowTile tile = TileOf(args.plan, positions, block.z());
    const int32_t begin = block.x() * kAttentionSegment;
    if (begin >= tile.most || begin + kAttentionSegment <= tile.least) return;
    auto& shared = block.template Shared<SharedOf<Block>>();
    for (int32_t first = 0; first < tile.rows; first += kRowsAtOnce) {
      block.template ForThreads<kThreads>(
          [&](int32_t t) { LoadWeights(block, args, tile, first, t, shared); });
      block.template ForThreads<kThreads>([&](int32_t t) {
        if (t % kDim < args.plan.head_dim) AddUp(block, args, tile, first, t, shared);
      });
    }
  }

 private:
  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadWeights(const Block& block, const Args& args, const RowTile& tile,
                                          int32_t first, int32_t t, Shared& shared) {
    const auto weights = block.Use(args.weights);
    const auto positions = block.Use(args.plan.positions);
    const int32_t p = block.x() * kAttentionSegment + t;  // a thread a position
    for (int32_t r = 0; r < kRowsAtOnce && first + r < tile.rows; ++r) {
      const RowPlace place = PlaceOf(args.plan, tile, block.y(), first + r);
      const int32_t own = positions[place.query];
      if (p > own || p < args.plan.FirstOf(own)) continue;
      shared.weights[r * kAttentionSegment + t] = weights[place.index * args.plan.score_stride + p];
    }
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void AddUp(const Block& block, const Args& args, const RowTile& tile,
                                    int32_t first, int32_t t, Shared& shared) {
    const auto positions = block.Use(args.plan.positions);
    const auto partials = block.Use(args.partials);
    Work work = {};
    work.begin = block.x() * kAttentionSegment;
    work.first = tile.least > work.begin ? tile.least : work.begin;
    work.end =
        tile.most - work.begin < kAttentionSegment ? tile.most : work.begin + kAttentionSegment;
    work.element = int64_t{block.y()} * args.plan.head_dim + t % kDim;
    work.row = t / kDim * kThreadRows;
    for (int32_t i = 0; i < kThreadRows; ++i) {
      const int32_t r = first + work.row + i;
      if (r >= tile.rows) break;
      const int32_t own = positions[PlaceOf(args.plan, tile, block.y(), r).query];
      work.from[i] = args.plan.FirstOf(own);
      work.visible[i] = own + 1;
    }
    AddPositions(block, args, tile, work, shared);
    for (int32_t i = 0; i < kThreadRows; ++i) {
      if (work.visible[i] <= work.begin) continue;
      if (work.from[i] >= work.begin + kAttentionSegment) continue;
      const RowPlace place = PlaceOf(args.plan, tile, block.y(), first + work.row + i);
      const int64_t at = (place.index * args.plan.segments + block.x()) * args.plan.head_dim;
      partials[at + t % kDim] = work.acc[i];
    }
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void AddPositions(const Block& block, const Args& args,
                                           const RowTile& tile, Work& work, Shared& shared) {
    if (args.values.window > 0) {
      AddWindowed(block, args, tile, work, shared);
      return;
    }
    switch (args.values.type) {
      case RowType::kF32:
        AddRows<RowType::kF32>(block, args, work, shared);
        return;
      case RowType::kF16:
        AddRows<RowType::kF16>(block, args, work, shared);
        return;
      case RowType::kQ8_0:
        AddRows<RowType::kQ8_0>(block, args, work, shared);
        return;
      case RowType::kQ4_0:
        AddRows<RowType::kQ4_0>(block, args, work, shared);
        return;
      case RowType::kBf16:
        AddRows<RowType::kBf16>(block, args, work, shared);
        return;
    }
  }

  template <typename Shared>
  LOCKSTEP_KERNEL static void AddOne(Work& work, int32_t p, float value, Shared& shared) {
    for (int32_t i = 0; i < kThreadRows; ++i) {
      if (p >= work.visible[i] || p < work.from[i]) continue;
      const float weight = shared.weights[(work.row + i) * kAttentionSegment + p - work.begin];
      work.acc[i] = Fma(weight, value, work.acc[i]);
    }
  }

  template <RowType kType, typename Block, typename Shared>
  LOCKSTEP_KERNEL static void AddRows(const Block& block, const Args& args, Work& work,
                                      Shared& shared) {
    constexpr int32_t kAtOnce = 8;  // loads that are under way together
    const auto bytes = block.Use(args.values.bytes);
    const int64_t stride = args.values.stride;
    int32_t p = work.first;
    for (; p + kAtOnce <= work.end; p += kAtOnce) {
      float values[kAtOnce];
      for (int32_t j = 0; j < kAtOnce; ++j) {
        values[j] = LoadElement<kType>(bytes, RowOffset(kType, stride, p + j), work.element);
      }
      for (int32_t j = 0; j < kAtOnce; ++j) AddOne(work, p + j, values[j], shared);
    }
    for (; p < work.end; ++p) {
      const float value = LoadElement<kType>(bytes, RowOffset(kType, stride, p), work.element);
      AddOne(work, p, value, shared);
    }
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void AddWindowed(const Block& block, const Args& args, const RowTile& tile,
                                          Work& work, Shared& shared) {
    const auto bytes = block.Use(args.values.bytes);
    const auto exact = block.Use(args.values.exact);
    const auto exact_rows = block.Use(args.values.exact_rows);
    const int64_t stride = args.values.stride;
    for (int32_t p = work.first; p < work.end; ++p) {
      const int32_t row = ExactRow(args.values, exact_rows, tile.first, tile.most - 1, p);
      const float value = row >= 0
                              ? WidenF16(exact[row * stride + work.element])
                              : LoadElement(args.values.type, bytes,
                                            RowOffset(args.values.type, stride, p), work.element);
      AddOne(work, p, value, shared);
    }
  }
};

// Grid: [elements of out / (4 kThreads)].
struct CombineKernel {
  static constexpr char kName[] = "attention_combine";
  static constexpr int32_t kThreads = 128;
  struct Args {
    AttentionPlan plan;
    Global<const float> partials;  // [queries, heads, segments, head_dim]
    Global<const float> sums;      // [queries, heads]
    Global<float> out;             // [queries, heads * head_dim]
    Global<uint8_t> blocks;        // or empty
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto partials = block.Use(args.partials);
    const auto sums = block.Use(args.sums);
    const auto out = block.Use(args.out);
    const auto blocks = block.Use(args.blocks);
    const auto positions = block.Use(args.plan.positions);
    auto& shared = block.template Shared<QuantizeShared<Block, kThreads>>();
    const int64_t first = block.x() * int64_t{4 * kThreads};
    const int32_t dim = args.plan.head_dim;
    PerThread<Block, Floats4, kThreads> values;
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int32_t j = 0; j < 4 && first + 4 * t + j < out.size(); ++j) {
        const int64_t i = first + 4 * t + j;
        const int64_t row = i / dim;
        const int32_t position = positions[row / args.plan.heads];
        float total = -0.0f;  // -0 + p is p, for every p
        const int32_t first_segment = args.plan.FirstOf(position) / kAttentionSegment;
        for (int32_t s = first_segment; s <= position / kAttentionSegment; ++s) {
          total = total + partials[(row * args.plan.segments + s) * dim + i % dim];
        }
        const float value = total / sums[row];
        out[i] = value;
        values[t].v[j] = value;
      }
    });
    if (blocks.size() > 0) {
      StoreQuantized<kThreads>(block, shared, values, first, out.size(), blocks);
    }
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_VALUE_KERNELS_H_
