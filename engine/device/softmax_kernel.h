// Softmax of attention: scores become exp(score - m), and the sum of them is kept. For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_SOFTMAX_KERNEL_H_
#define LOCKSTEP_ENGINE_DEVICE_SOFTMAX_KERNEL_H_

#include <cstdint>

#include "engine/device/attention_shape.h"

namespace lockstep::device {

// Grid: [heads, queries]. The 16 lanes of tree16 are the work of 16 threads.
struct SoftmaxKernel {
  static constexpr char kName[] = "attention_softmax";
  static constexpr int32_t kThreads = 256;
  static constexpr int32_t kTile = 2048;  // positions; a multiple of the lanes
  struct Args {
    AttentionPlan plan;
    Global<float> scores;  // [queries, heads, score_stride]
    Global<float> sums;    // [queries, heads]
  };
  template <typename Block>
  struct SharedOf {
    SharedArray<Block, float, kThreads> largest;
    SharedArray<Block, float, kTile> tile;
    SharedArray<Block, float, kTreeLanes> lanes;
  };

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto positions = block.Use(args.plan.positions);
    const auto scores = block.Use(args.scores);
    const auto sums = block.Use(args.sums);
    auto& shared = block.template Shared<SharedOf<Block>>();
    const int32_t position = positions[block.y()];
    const int32_t visible = position + 1;
    const int32_t from = args.plan.FirstOf(position);
    const int32_t start = from / kTreeLanes * kTreeLanes;  // lanes count from position 0
    const int64_t index = int64_t{block.y()} * args.plan.heads + block.x();
    const int64_t row = index * args.plan.score_stride;
    Largest(block, scores, row, from, visible, shared);
    PerThread<Block, float, kThreads> lane;
    for (int32_t begin = start; begin < visible; begin += kTile) {
      const int32_t skipped = from > begin ? from - begin : 0;  // less than the lanes
      const int32_t count = visible - begin < kTile ? visible - begin : kTile;
      block.template ForThreads<kThreads>([&](int32_t t) {
        const float top = shared.largest[0];
        for (int32_t i = t; i < count; i += kThreads) {
          if (i < skipped) continue;
          const float weight = Exp(scores[row + begin + i] - top);
          scores[row + begin + i] = weight;
          shared.tile[i] = weight;
        }
      });
      block.template ForThreads<kThreads>([&](int32_t t) {
        if (t >= kTreeLanes) return;
        float acc = begin == start ? 0.0f : lane[t];
        for (int32_t i = t < skipped ? t + kTreeLanes : t; i < count; i += kTreeLanes) {
          acc = acc + shared.tile[i];
        }
        lane[t] = acc;
        shared.lanes[t] = acc;
      });
    }
    block.template ForThreads<kThreads>([&](int32_t t) {
      if (t == 0) sums[index] = SumLanes(shared.lanes);
    });
  }

 private:
  // The largest number of a row, into place 0.
  template <typename Block, typename Scores, typename Shared>
  LOCKSTEP_KERNEL static void Largest(const Block& block, const Scores& scores, int64_t row,
                                      int32_t from, int32_t visible, Shared& shared) {
    block.template ForThreads<kThreads>([&](int32_t t) {
      float top = FloatOf(0xff800000u);  // -infinity
      for (int32_t p = from + t; p < visible; p += kThreads) {
        const float score = scores[row + p];
        top = score > top ? score : top;
      }
      shared.largest[t] = top;
    });
    for (int32_t width = kThreads / 2; width > 0; width /= 2) {
      block.template ForThreads<kThreads>([&](int32_t t) {
        if (t >= width) return;
        const float other = shared.largest[t + width];
        const float mine = shared.largest[t];
        shared.largest[t] = other > mine ? other : mine;
      });
    }
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_SOFTMAX_KERNEL_H_
