// y = w x for many tokens: tiles of 64 outputs by 64 tokens, 4 by 4 of them a thread. For nvcc too.
//
// A tile goes along the reduction in chunks that all threads bring into shared memory: weights as
// quads of rows, taken apart when they are brought, and for each token the words that they meet. Of
// a float type a word is one element, of a quantized one it is four.
#ifndef LOCKSTEP_ENGINE_DEVICE_MAT_MUL_KERNEL_H_
#define LOCKSTEP_ENGINE_DEVICE_MAT_MUL_KERNEL_H_

#include <cstdint>

#include "engine/device/weight_lines.h"

namespace lockstep::device {

constexpr int32_t kTileRows = 64;
constexpr int32_t kTileTokens = 64;
constexpr int32_t kTileThreads = 256;
constexpr int32_t kTileQuads = kTileRows / 4;

struct MatMulKernelArgs {
  int32_t cols;
  int32_t tokens;
  Global<const uint8_t> weights;
  Global<const float> x;         // [tokens, cols], for float weights
  Global<const uint8_t> blocks;  // [tokens, cols / 32], for quantized ones
  Epilogue out;
};

// A thread's outputs: rows 4 (t % 16) + r and tokens 4 (t / 16) + i of the tile.
struct TileSums {
  float v[4][4];  // [r][i]
};

LOCKSTEP_KERNEL void ClearSums(TileSums& sums, float value) {
  for (int32_t r = 0; r < 4; ++r) {
    for (int32_t i = 0; i < 4; ++i) sums.v[r][i] = value;
  }
}

// total += acc, and acc starts again: the end of a segment.
LOCKSTEP_KERNEL void CloseSegment(TileSums& total, TileSums& acc) {
  for (int32_t r = 0; r < 4; ++r) {
    for (int32_t i = 0; i < 4; ++i) total.v[r][i] = total.v[r][i] + acc.v[r][i];
  }
  ClearSums(acc, 0.0f);
}

template <typename Block>
LOCKSTEP_KERNEL void StoreTile(const Block& block, const MatMulKernelArgs& args, int32_t t,
                               const TileSums& total) {
  const int32_t row = block.y() * kTileRows + t % kTileQuads * 4;
  const int32_t token = block.x() * kTileTokens + t / kTileQuads * 4;
  for (int32_t i = 0; i < 4 && token + i < args.tokens; ++i) {
    for (int32_t r = 0; r < 4; ++r) {
      StoreOutput(block, args.out, token + i, row + r, total.v[r][i]);
    }
  }
}

// Grid: [tokens / 64, rows / 64], so that blocks which read the same weights run together.
template <WeightType kType>
struct MatMulFloatKernel {
  static constexpr KernelName kFullName = KernelNameOf("mat_mul_", kType);
  static constexpr const char* kName = kFullName.text;
  static constexpr int32_t kThreads = kTileThreads;
  static constexpr int32_t kChunk = 32;  // k; a segment is whole chunks
  using Args = MatMulKernelArgs;

  template <typename Block>
  struct SharedOf {
    SharedArray<Block, Floats4, kChunk * kTileQuads> w;       // [k, quad of rows]
    SharedArray<Block, Floats4, kTileTokens * kChunk / 4> x;  // [token, four k]
  };

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    auto& shared = block.template Shared<SharedOf<Block>>();
    PerThread<Block, TileSums, kThreads> acc;
    PerThread<Block, TileSums, kThreads> total;
    block.template ForThreads<kThreads>([&](int32_t t) {
      ClearSums(acc[t], 0.0f);
      ClearSums(total[t], -0.0f);  // -0 + p is p, for every p
    });
    for (int32_t begin = 0; begin < args.cols; begin += kChunk) {
      const int32_t count = args.cols - begin < kChunk ? args.cols - begin : kChunk;
      block.template ForThreads<kThreads>([&](int32_t t) {
        LoadWeights(block, args, t, begin, count, shared);
        LoadTokens(block, args, t, begin, count, shared);
      });
      block.template ForThreads<kThreads>([&](int32_t t) {
        for (int32_t k = 0; k < count; k += 4) Multiply(shared, t, k, count - k, acc[t]);
        const int32_t end = begin + count;
        if (end % kSegment == 0 || end == args.cols) CloseSegment(total[t], acc[t]);
      });
    }
    block.template ForThreads<kThreads>([&](int32_t t) { StoreTile(block, args, t, total[t]); });
  }

 private:
  // Up to 4 k from k on.
  template <typename Shared>
  LOCKSTEP_KERNEL static void Multiply(Shared& shared, int32_t t, int32_t k, int32_t left,
                                       TileSums& acc) {
    Floats4 x[4];
    for (int32_t i = 0; i < 4; ++i) {
      x[i] = shared.x[(t / kTileQuads * 4 + i) * (kChunk / 4) + k / 4];
    }
    for (int32_t j = 0; j < 4; ++j) {
      if (j >= left) break;
      const Floats4 w = shared.w[(k + j) * kTileQuads + t % kTileQuads];
      for (int32_t r = 0; r < 4; ++r) {
        for (int32_t i = 0; i < 4; ++i) acc.v[r][i] = Fma(w.v[r], x[i].v[j], acc.v[r][i]);
      }
    }
  }

  // A piece is 16 bytes of a line; of halves it is two quads of rows.
  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadWeights(const Block& block, const Args& args, int32_t t,
                                          int32_t begin, int32_t count, Shared& shared) {
    constexpr int32_t kStrips = kTileRows / kStripRows<kType>;
    constexpr int32_t kQuads = kWordRows<kType>;  // of a piece
    const auto weights = block.Use(args.weights);
    const int64_t strip_bytes = StripBytes<kType>(args.cols);
    for (int32_t piece = t; piece < count * kStrips * 4; piece += kThreads) {
      const int32_t part = piece % 4;
      const int32_t strip = piece / 4 % kStrips;
      const int32_t k = piece / (4 * kStrips);
      const int64_t at = (int64_t{block.y()} * kStrips + strip) * strip_bytes +
                         (int64_t{begin} + k) * kLineBytes + part * 16;
      Words4 words = {};
      if (at < weights.size()) words = weights.template Load<Words4>(at);
      for (int32_t q = 0; q < kQuads; ++q) {
        Floats4 quad;
        for (int32_t r = 0; r < 4; ++r) {
          const int32_t row = 4 * q + r;
          quad.v[r] = WeightOf<kType>(words.v[row / kQuads], row % kQuads);
        }
        shared.w[k * kTileQuads + (strip * 4 + part) * kQuads + q] = quad;
      }
    }
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadTokens(const Block& block, const Args& args, int32_t t,
                                         int32_t begin, int32_t count, Shared& shared) {
    const auto x = block.Use(args.x);
    for (int32_t i = t; i < kTileTokens * kChunk / 4; i += kThreads) {
      const int32_t token = block.x() * kTileTokens + i / (kChunk / 4);
      const int32_t k = i % (kChunk / 4) * 4;
      Floats4 four = {};
      for (int32_t j = 0; j < 4; ++j) {
        if (token < args.tokens && k + j < count) {
          four.v[j] = x[int64_t{token} * args.cols + begin + k + j];
        }
      }
      shared.x[i] = four;
    }
  }
};

// Grid: [tokens / 64, rows / 64]. A chunk is a pair of blocks.
template <WeightType kType>
struct MatMulQuantKernel {
  using Quant = QuantOf<kType>;
  static constexpr KernelName kFullName = KernelNameOf("mat_mul_", kType);
  static constexpr const char* kName = kFullName.text;
  static constexpr int32_t kThreads = kTileThreads;
  static constexpr int32_t kFours = 8;  // runs of four k in a block
  static constexpr int32_t kSubs = Quant::kSubs;
  static constexpr int32_t kGroups = kTileRows / 16;
  using Args = MatMulKernelArgs;

  template <typename Block>
  struct SharedOf {
    SharedArray<Block, Words4, 2 * kFours * kTileQuads> w;         // [block, four, quad of rows]
    SharedArray<Block, Floats4, 2 * kSubs * kTileQuads> w_scales;  // [block, sub-block, quad]
    SharedArray<Block, Floats4, 2 * kSubs * kTileQuads> w_lows;    // likewise
    SharedArray<Block, Words4, 2 * 2 * kTileTokens> x;             // [block, token, half]
    SharedArray<Block, float, 2 * kTileTokens> x_scales;           // [block, token]
    SharedArray<Block, int32_t, 2 * kTileTokens * kSubs> x_sums;   // [block, token, sub-block]
  };

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    auto& shared = block.template Shared<SharedOf<Block>>();
    PerThread<Block, TileSums, kThreads> acc;
    PerThread<Block, TileSums, kThreads> total;
    block.template ForThreads<kThreads>([&](int32_t t) {
      ClearSums(acc[t], 0.0f);
      ClearSums(total[t], -0.0f);  // -0 + p is p, for every p
    });
    const int32_t blocks = args.cols / 32;
    for (int32_t begin = 0; begin < blocks; begin += 2) {
      const int32_t count = blocks - begin < 2 ? 1 : 2;
      block.template ForThreads<kThreads>([&](int32_t t) {
        LoadCodes(block, args, t, begin, count, shared);
        LoadScales(block, args, t, begin, count, shared);
        LoadTokens(block, args, t, begin, count, shared);
      });
      block.template ForThreads<kThreads>([&](int32_t t) {
        for (int32_t i = 0; i < count * kSubs; ++i)
          Multiply(shared, t, i / kSubs, i % kSubs, acc[t]);
        const int32_t end = begin + count;
        if (end % kBlocksPerSegment == 0 || end == blocks) CloseSegment(total[t], acc[t]);
      });
    }
    block.template ForThreads<kThreads>([&](int32_t t) { StoreTile(block, args, t, total[t]); });
  }

 private:
  // Sub-block s of block b of the chunk.
  template <typename Shared>
  LOCKSTEP_KERNEL static void Multiply(Shared& shared, int32_t t, int32_t b, int32_t s,
                                       TileSums& acc) {
    constexpr int32_t kParts = 2 / kSubs;  // of 16 k
    const int32_t quad = t % kTileQuads;
    const int32_t token = b * kTileTokens + t / kTileQuads * 4;
    int32_t x_sums[4] = {};
    int32_t sums[4][4];
    for (int32_t i = 0; i < 4; ++i) {
      if constexpr (Quant::kSums) x_sums[i] = shared.x_sums[(token + i) * kSubs + s];
      for (int32_t r = 0; r < 4; ++r) sums[r][i] = -Quant::kBias * x_sums[i];
    }
    for (int32_t part = s * kParts; part < (s + 1) * kParts; ++part) {
      Words4 x[4];
      for (int32_t i = 0; i < 4; ++i) x[i] = shared.x[(token + i) * 2 + part];
      for (int32_t j = 0; j < 4; ++j) {
        const Words4 w = shared.w[(b * kFours + part * 4 + j) * kTileQuads + quad];
        for (int32_t r = 0; r < 4; ++r) {
          for (int32_t i = 0; i < 4; ++i) sums[r][i] = Dp4a(w.v[r], x[i].v[j], sums[r][i]);
        }
      }
    }
    const int32_t at = (b * kSubs + s) * kTileQuads + quad;
    const Floats4 scales = shared.w_scales[at];
    Floats4 lows = {};
    if constexpr (Quant::kLows) lows = shared.w_lows[at];
    for (int32_t i = 0; i < 4; ++i) {
      const float dx = shared.x_scales[token + i];
      for (int32_t r = 0; r < 4; ++r) {
        acc.v[r][i] =
            AddSubBlock<kType>(sums[r][i], x_sums[i], {scales.v[r], lows.v[r]}, dx, acc.v[r][i]);
      }
    }
  }

  // Offset of the group of a quad's rows.
  LOCKSTEP_KERNEL static int64_t GroupAt(const Args& args, int32_t tile, int32_t quad) {
    return (int64_t{tile} * kGroups + quad / 4) * StripBytes<kType>(args.cols);
  }

  // Four k of four rows a piece; rows behind the matrix are zeros.
  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadCodes(const Block& block, const Args& args, int32_t t,
                                        int32_t begin, int32_t count, Shared& shared) {
    const auto weights = block.Use(args.weights);
    for (int32_t piece = t; piece < count * kFours * kTileQuads; piece += kThreads) {
      const int32_t quad = piece % kTileQuads;
      const int32_t four = piece / kTileQuads % kFours;
      const int32_t b = begin + piece / (kTileQuads * kFours);
      const int64_t group = GroupAt(args, block.y(), quad);
      const int64_t lines = group + internal::CodesAt(internal::FormatOf(kType), b) + quad % 4 * 16;
      Words4 codes = {};
      for (int32_t r = 0; r < 4 && group < weights.size(); ++r) {
        codes.v[r] = CodeWord<kType>(
            [&](int32_t line) {
              return weights.template Load<uint32_t>(lines + line * kLineBytes + 4 * r);
            },
            four);
      }
      shared.w[piece] = codes;
    }
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadScales(const Block& block, const Args& args, int32_t t,
                                         int32_t begin, int32_t count, Shared& shared) {
    const auto weights = block.Use(args.weights);
    for (int32_t piece = t; piece < count * kSubs * kTileQuads; piece += kThreads) {
      const int32_t quad = piece % kTileQuads;
      const int32_t s = piece / kTileQuads % kSubs;
      const int32_t b = begin + piece / (kTileQuads * kSubs);
      const int64_t group = GroupAt(args, block.y(), quad);
      Floats4 scales = {};
      Floats4 lows = {};
      for (int32_t r = 0; r < 4 && group < weights.size(); ++r) {
        const SubScale sub = LoadSubScale<kType>(weights, group, b, s, quad % 4 * 4 + r);
        scales.v[r] = sub.scale;
        lows.v[r] = sub.low;
      }
      shared.w_scales[piece] = scales;
      if constexpr (Quant::kLows) shared.w_lows[piece] = lows;
    }
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadTokens(const Block& block, const Args& args, int32_t t,
                                         int32_t begin, int32_t count, Shared& shared) {
    const auto blocks = block.Use(args.blocks);
    const int32_t first = block.x() * kTileTokens;
    for (int32_t piece = t; piece < count * kTileTokens * 2; piece += kThreads) {
      const int32_t b = piece / (2 * kTileTokens);
      const int32_t half = piece % 2;
      const int32_t token = piece / 2 % kTileTokens;
      const int64_t at = ((int64_t{first} + token) * (args.cols / 32) + begin + b) * kBlockBytes;
      const bool inside = first + token < args.tokens;
      Words4 words = {};
      for (int32_t j = 0; inside && j < 2; ++j) {
        const auto two = blocks.template Load<Words2>(at + half * 16 + 8 * j);
        words.v[2 * j] = two.v[0];
        words.v[2 * j + 1] = two.v[1];
      }
      shared.x[piece] = words;
      if (half == 0) {
        shared.x_scales[piece / 2] =
            inside ? blocks.template Load<float>(at + kBlockScaleAt) : 0.0f;
      }
      if constexpr (Quant::kSums && kSubs == 2) {
        int32_t sum = 0;
        for (int32_t j = 0; j < 4; ++j) sum = AddFour(words.v[j], sum);
        shared.x_sums[piece] = sum;
      } else if constexpr (Quant::kSums) {
        // An ActivationBlock has -128 times its sum.
        if (half == 0) {
          shared.x_sums[piece / 2] =
              inside ? blocks.template Load<int32_t>(at + kBlockOffsetAt) / -128 : 0;
        }
      }
    }
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_MAT_MUL_KERNEL_H_
