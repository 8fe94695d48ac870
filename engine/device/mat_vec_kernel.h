// y = w x for one or a few tokens: what decoding does, bound by the reading of the weights. For
// nvcc too.
//
// Sixteen threads, a unit, read the lines of one segment of a strip, from its first to its last,
// each for its own row or two. Units of a block take the segments of one strip, and more strips
// when there are fewer segments; the partial sums go through shared memory and are added in order.
#ifndef LOCKSTEP_ENGINE_DEVICE_MAT_VEC_KERNEL_H_
#define LOCKSTEP_ENGINE_DEVICE_MAT_VEC_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "engine/device/weight_lines.h"

namespace lockstep::device {

// Grid: [tokens, strips / (kUnits / slots)], so that blocks which read the same weights run
// together.
template <WeightType kType>
struct MatVecKernel {
  static constexpr KernelName kFullName = KernelNameOf("mat_vec_", kType);
  static constexpr const char* kName = kFullName.text;
  static constexpr int32_t kThreads = 256;
  static constexpr int32_t kUnits = kThreads / kLineThreads;
  static constexpr int32_t kRows = kWordRows<kType>;

  struct Args {
    int32_t cols;
    int32_t slots;    // segments of a strip that are computed at once; a power of two <= kUnits
    int32_t x_share;  // tokens that read one row of x
    int64_t matrix_bytes;          // of one of several matrices
    Global<const int32_t> chosen;  // [tokens], which of them; empty where there is one
    Global<const uint8_t> weights;
    Global<const float> x;         // [tokens, cols], for float weights
    Global<const uint8_t> blocks;  // [tokens, cols / 32], for quantized ones
    Epilogue out;
  };

  struct Sums {
    float v[static_cast<size_t>(kRows)];
  };

  template <typename Block>
  struct SharedOf {
    SharedArray<Block, float, kThreads * kRows> partial;
  };

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    auto& shared = block.template Shared<SharedOf<Block>>();
    PerThread<Block, Sums, kThreads> total;  // of the threads of each strip's first unit
    const int32_t strips = (args.out.rows + kStripRows<kType> - 1) / kStripRows<kType>;
    const int32_t segments = (args.cols + kSegment - 1) / kSegment;
    const int32_t first = block.y() * (kUnits / args.slots);
    for (int32_t base = 0; base < segments; base += args.slots) {
      block.template ForThreads<kThreads>([&](int32_t t) {
        const int32_t unit = t / kLineThreads;
        const int32_t strip = first + unit / args.slots;
        const int32_t segment = base + unit % args.slots;
        if (strip >= strips || segment >= segments) return;
        const Sums partial = Segment(block, args, strip, segment, t % kLineThreads);
        for (int32_t r = 0; r < kRows; ++r) shared.partial[t * kRows + r] = partial.v[r];
      });
      block.template ForThreads<kThreads>([&](int32_t t) {
        const int32_t unit = t / kLineThreads;
        if (unit % args.slots != 0 || first + unit / args.slots >= strips) return;
        const int32_t left = segments - base < args.slots ? segments - base : args.slots;
        for (int32_t r = 0; r < kRows; ++r) {
          // -0 + p is p, for every p.
          float sum = base == 0 ? -0.0f : total[t].v[r];
          for (int32_t s = 0; s < left; ++s) {
            sum = sum + shared.partial[(t + s * kLineThreads) * kRows + r];
          }
          total[t].v[r] = sum;
        }
      });
    }
    block.template ForThreads<kThreads>([&](int32_t t) {
      const int32_t unit = t / kLineThreads;
      const int32_t strip = first + unit / args.slots;
      if (unit % args.slots != 0 || strip >= strips) return;
      const int32_t row = strip * kStripRows<kType> + t % kLineThreads * kRows;
      for (int32_t r = 0; r < kRows; ++r) {
        StoreOutput(block, args.out, block.x(), row + r, total[t].v[r]);
      }
    });
  }

 private:
  // Offset of a strip of the token's matrix.
  template <typename Block>
  LOCKSTEP_KERNEL static int64_t StripAt(const Block& block, const Args& args, int32_t strip) {
    const auto chosen = block.Use(args.chosen);
    int32_t matrix = 0;
    if (chosen.size() > 0) matrix = chosen[block.x()];
    return matrix * args.matrix_bytes + strip * StripBytes<kType>(args.cols);
  }

  template <typename Block>
  LOCKSTEP_KERNEL static Sums Segment(const Block& block, const Args& args, int32_t strip,
                                      int32_t segment, int32_t lane) {
    if constexpr (kIsQuantized<kType>) {
      return QuantSegment(block, args, strip, segment, lane);
    } else {
      return FloatSegment(block, args, strip, segment, lane);
    }
  }

  template <typename Block>
  LOCKSTEP_KERNEL static Sums FloatSegment(const Block& block, const Args& args, int32_t strip,
                                           int32_t segment, int32_t lane) {
    constexpr int32_t kAtOnce = 8;  // loads that are under way together
    const auto weights = block.Use(args.weights);
    const auto x = block.Use(args.x);
    const int64_t begin = int64_t{segment} * kSegment;
    const int64_t end = begin + kSegment < args.cols ? begin + kSegment : args.cols;
    const int64_t line = StripAt(block, args, strip) + lane * 4;
    const int64_t row = block.x() / args.x_share * int64_t{args.cols};
    Sums acc = {};
    int64_t k = begin;
    for (; k + kAtOnce <= end; k += kAtOnce) {
      uint32_t words[kAtOnce];
      for (int32_t j = 0; j < kAtOnce; ++j) {
        words[j] = weights.template Load<uint32_t>(line + (k + j) * kLineBytes);
      }
      for (int32_t j = 0; j < kAtOnce; ++j) {
        const float value = x[row + k + j];
        for (int32_t r = 0; r < kRows; ++r) {
          acc.v[r] = Fma(WeightOf<kType>(words[j], r), value, acc.v[r]);
        }
      }
    }
    for (; k < end; ++k) {
      const auto word = weights.template Load<uint32_t>(line + k * kLineBytes);
      const float value = x[row + k];
      for (int32_t r = 0; r < kRows; ++r) {
        acc.v[r] = Fma(WeightOf<kType>(word, r), value, acc.v[r]);
      }
    }
    return acc;
  }

  template <typename Block>
  LOCKSTEP_KERNEL static Sums QuantSegment(const Block& block, const Args& args, int32_t strip,
                                           int32_t segment, int32_t lane) {
    const int32_t blocks = args.cols / 32;
    const int32_t begin = segment * kBlocksPerSegment;
    const int32_t end = begin + kBlocksPerSegment < blocks ? begin + kBlocksPerSegment : blocks;
    const int64_t group = StripAt(block, args, strip);
    Sums acc = {};
    for (int32_t b = begin; b < end; ++b) {
      acc.v[0] = AddBlock(block, args, group, b, lane, acc.v[0]);
    }
    return acc;
  }

  template <typename Block>
  LOCKSTEP_KERNEL static float AddBlock(const Block& block, const Args& args, int64_t group,
                                        int32_t b, int32_t lane, float acc) {
    using Quant = QuantOf<kType>;
    constexpr int32_t kFours = 8 / Quant::kSubs;  // runs of four k in a sub-block
    const auto weights = block.Use(args.weights);
    const auto blocks = block.Use(args.blocks);
    const int64_t line = group + internal::CodesAt(internal::FormatOf(kType), b) + lane * 4;
    uint32_t words[static_cast<size_t>(Quant::kLines)];
    for (int32_t i = 0; i < Quant::kLines; ++i) {
      words[i] = weights.template Load<uint32_t>(line + i * kLineBytes);
    }
    const int64_t at = (block.x() / args.x_share * int64_t{args.cols / 32} + b) * kBlockBytes;
    uint32_t quants[8];
    for (int32_t i = 0; i < 4; ++i) {
      const auto two = blocks.template Load<Words2>(at + 8 * i);
      quants[2 * i] = two.v[0];
      quants[2 * i + 1] = two.v[1];
    }
    const auto dx = blocks.template Load<float>(at + kBlockScaleAt);
    for (int32_t s = 0; s < Quant::kSubs; ++s) {
      int32_t x_sum = 0;
      if constexpr (Quant::kSums && Quant::kSubs == 2) {
        for (int32_t i = 0; i < kFours; ++i) x_sum = AddFour(quants[s * kFours + i], x_sum);
      } else if constexpr (Quant::kSums) {
        x_sum = blocks.template Load<int32_t>(at + kBlockOffsetAt) / -128;
      }
      int32_t dot = -Quant::kBias * x_sum;
      for (int32_t four = s * kFours; four < (s + 1) * kFours; ++four) {
        dot = Dp4a(CodeWord<kType>([&](int32_t i) { return words[i]; }, four), quants[four], dot);
      }
      acc =
          AddSubBlock<kType>(dot, x_sum, LoadSubScale<kType>(weights, group, b, s, lane), dx, acc);
    }
    return acc;
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_MAT_VEC_KERNEL_H_
