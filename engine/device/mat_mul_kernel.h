// y = w x for many tokens: tiles of 64 outputs by 64 tokens, 4 by 4 of them a thread. For nvcc too.
//
// A tile goes along the reduction in chunks that all threads bring into shared memory: lines of
// weights as quads of rows, and for each token the words that these lines meet. Of a float type a
// word is one element, widened when it is brought; of a quantized one it is four.
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
  static constexpr const char* kName = kType == WeightType::kF32   ? "mat_mul_f32"
                                       : kType == WeightType::kF16 ? "mat_mul_f16"
                                                                   : "mat_mul_bf16";
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
  static constexpr const char* kName = kType == WeightType::kQ8_0 ? "mat_mul_q8_0" : "mat_mul_q4_0";
  static constexpr int32_t kThreads = kTileThreads;
  static constexpr int32_t kLines = kQuantLines<kType>;  // of a block
  static constexpr int32_t kGroups = kTileRows / 16;
  using Args = MatMulKernelArgs;

  template <typename Block>
  struct SharedOf {
    SharedArray<Block, Words4, 2 * kLines * kTileQuads> w;  // [block, line, quad of rows]
    SharedArray<Block, Floats4, 2 * kTileQuads> w_scales;   // [block, quad of rows]
    SharedArray<Block, Words4, 2 * 2 * kTileTokens> x;      // [block, token, half]
    SharedArray<Block, float, 2 * kTileTokens> x_scales;    // [block, token]
    SharedArray<Block, int32_t, 2 * kTileTokens> x_offsets;
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
        LoadWeights(block, args, t, begin, count, shared);
        LoadTokens(block, args, t, begin, count, shared);
      });
      block.template ForThreads<kThreads>([&](int32_t t) {
        for (int32_t b = 0; b < count; ++b) Multiply(shared, t, b, acc[t]);
        const int32_t end = begin + count;
        if (end % kBlocksPerSegment == 0 || end == blocks) CloseSegment(total[t], acc[t]);
      });
    }
    block.template ForThreads<kThreads>([&](int32_t t) { StoreTile(block, args, t, total[t]); });
  }

 private:
  template <typename Shared>
  LOCKSTEP_KERNEL static void Multiply(Shared& shared, int32_t t, int32_t b, TileSums& acc) {
    const int32_t quad = t % kTileQuads;
    const int32_t token = b * kTileTokens + t / kTileQuads * 4;
    int32_t sums[4][4];
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t offset = shared.x_offsets[token + i];
      for (int32_t r = 0; r < 4; ++r) sums[r][i] = FirstSum<kType>(offset);
    }
    for (int32_t part = 0; part < kLines / 4; ++part) {  // four lines
      Words4 low[4];
      Words4 high[4];
      for (int32_t i = 0; i < 4; ++i) {
        low[i] = shared.x[(token + i) * 2 + part];
        high[i] = shared.x[(token + i) * 2 + 1];
      }
      for (int32_t j = 0; j < 4; ++j) {
        const Words4 w = shared.w[(b * kLines + part * 4 + j) * kTileQuads + quad];
        for (int32_t r = 0; r < 4; ++r) {
          for (int32_t i = 0; i < 4; ++i) {
            sums[r][i] = DotLine<kType>(w.v[r], low[i].v[j], high[i].v[j], sums[r][i]);
          }
        }
      }
    }
    const Floats4 dw = shared.w_scales[b * kTileQuads + quad];
    for (int32_t i = 0; i < 4; ++i) {
      const float dx = shared.x_scales[token + i];
      for (int32_t r = 0; r < 4; ++r) {
        acc.v[r][i] = Fma(static_cast<float>(sums[r][i]), dw.v[r] * dx, acc.v[r][i]);
      }
    }
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadWeights(const Block& block, const Args& args, int32_t t,
                                          int32_t begin, int32_t count, Shared& shared) {
    const auto weights = block.Use(args.weights);
    const int64_t group_bytes = StripBytes<kType>(args.cols);
    const int64_t first = int64_t{block.y()} * kGroups;
    for (int32_t piece = t; piece < count * kLines * kTileQuads; piece += kThreads) {
      const int32_t quad = piece % kTileQuads;
      const int32_t line = piece / kTileQuads;  // of both blocks
      const int64_t at = (first + quad / 4) * group_bytes +
                         internal::LinesAt(kLines, begin + line / kLines) +
                         line % kLines * kLineBytes + quad % 4 * 16;
      Words4 words = {};
      if (at < weights.size()) words = weights.template Load<Words4>(at);
      shared.w[piece] = words;
    }
    for (int32_t piece = t; piece < count * kTileQuads; piece += kThreads) {
      const int32_t quad = piece % kTileQuads;
      const int64_t at = (first + quad / 4) * group_bytes +
                         internal::ScalesAt(kLines, begin + piece / kTileQuads) + quad % 4 * 8;
      Words2 words = {};
      if (at < weights.size()) words = weights.template Load<Words2>(at);
      Floats4 scales;
      for (int32_t r = 0; r < 4; ++r) {
        scales.v[r] = WidenF16(static_cast<uint16_t>(words.v[r / 2] >> (r % 2 * 16)));
      }
      shared.w_scales[piece] = scales;
    }
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadTokens(const Block& block, const Args& args, int32_t t,
                                         int32_t begin, int32_t count, Shared& shared) {
    const auto blocks = block.Use(args.blocks);
    const int32_t first = block.x() * kTileTokens;
    for (int32_t piece = t; piece < count * kTileTokens * 2; piece += kThreads) {
      const int32_t b = piece / (2 * kTileTokens);
      const int32_t token = piece / 2 % kTileTokens;
      const int64_t at = ((int64_t{first} + token) * (args.cols / 32) + begin + b) * kBlockBytes;
      const bool inside = first + token < args.tokens;
      Words4 words = {};
      for (int32_t j = 0; inside && j < 2; ++j) {
        const auto two = blocks.template Load<Words2>(at + piece % 2 * 16 + 8 * j);
        words.v[2 * j] = two.v[0];
        words.v[2 * j + 1] = two.v[1];
      }
      shared.x[piece] = words;
      if (piece % 2 != 0) continue;
      shared.x_scales[piece / 2] = inside ? blocks.template Load<float>(at + kBlockScaleAt) : 0.0f;
      shared.x_offsets[piece / 2] = inside ? blocks.template Load<int32_t>(at + kBlockOffsetAt) : 0;
    }
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_MAT_MUL_KERNEL_H_
