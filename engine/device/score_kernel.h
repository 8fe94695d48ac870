// Scores of attention: a block decodes the keys of 32 positions once, for all of its rows. For nvcc
// too.
#ifndef LOCKSTEP_ENGINE_DEVICE_SCORE_KERNEL_H_
#define LOCKSTEP_ENGINE_DEVICE_SCORE_KERNEL_H_

#include <cstdint>

#include "engine/device/attention_shape.h"

namespace lockstep::device {

constexpr int32_t kScorePositions = 32;

struct ScoreArgs {
  AttentionPlan plan;
  StoredRows keys;
  float scale;
  float cap;              // of the scores; 0: none
  Global<const float> q;  // [queries, heads * head_dim]
  Global<float> scores;   // [queries, heads, score_stride]
};

// Heads of at most kDim elements. Grid: [positions / 32, KV heads, query tiles].
//
// Heads are padded to runs of 16 elements with zeros: fma(0, 0, acc) is acc but for the sign of a
// zero, and exp(score - m) is the same for both.
template <int32_t kDim>
struct ScoreKernel {
  static constexpr const char* kName = kDim == 64    ? "attention_scores_64"
                                       : kDim == 128 ? "attention_scores_128"
                                                     : "attention_scores_256";
  static constexpr int32_t kThreads = 128;
  static constexpr int32_t kQuads = kDim / 4;
  static constexpr int32_t kKeyStride = kQuads + 1;  // so that 8 positions lie in different banks
  static constexpr int32_t kRowStep = kThreads / kScorePositions;
  static constexpr int32_t kThreadRows = kRowsAtOnce / kRowStep;
  using Args = ScoreArgs;

  template <typename Block>
  struct SharedOf {
    SharedArray<Block, Floats4, kScorePositions * kKeyStride> keys;  // [position, four elements]
    SharedArray<Block, Floats4, kRowsAtOnce * kQuads> q;             // [row, four elements]
  };

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto positions = block.Use(args.plan.positions);
    const RowTile tile = TileOf(args.plan, positions, block.z());
    const int32_t begin = block.x() * kScorePositions;
    if (begin >= tile.most || begin + kScorePositions <= tile.least) return;
    auto& shared = block.template Shared<SharedOf<Block>>();
    const int32_t left = tile.most - begin;
    const int32_t count = left < kScorePositions ? left : kScorePositions;
    LoadKeys(block, args, tile, begin, count, shared);
    for (int32_t first = 0; first < tile.rows; first += kRowsAtOnce) {
      const int32_t rows = tile.rows - first < kRowsAtOnce ? tile.rows - first : kRowsAtOnce;
      LoadQueries(block, args, tile, first, rows, shared);
      block.template ForThreads<kThreads>([&](int32_t t) {
        const int32_t p = t % kScorePositions;
        if (p >= count || begin + p < tile.least) return;
        Score(block, args, tile, first, rows, t, shared);
      });
    }
  }

 private:
  // Runs of four elements of a head, padding included.
  LOCKSTEP_KERNEL static int32_t PaddedQuads(const Args& args) {
    return (args.plan.head_dim + kTreeLanes - 1) / kTreeLanes * (kTreeLanes / 4);
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadKeys(const Block& block, const Args& args, const RowTile& tile,
                                       int32_t begin, int32_t count, Shared& shared) {
    const auto bytes = block.Use(args.keys.bytes);
    const auto exact = block.Use(args.keys.exact);
    const auto exact_rows = block.Use(args.keys.exact_rows);
    const int32_t dim = args.plan.head_dim;
    const int32_t quads = PaddedQuads(args);
    const int64_t element = int64_t{block.y()} * dim;
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int32_t i = t; i < count * quads; i += kThreads) {
        const int32_t p = begin + i / quads;
        if (p < tile.least) continue;
        const int32_t d = i % quads * 4;
        const int32_t row = ExactRow(args.keys, exact_rows, tile.first, tile.most - 1, p);
        Floats4 four = {};
        if (dim % 4 == 0) {
          if (d < dim && row < 0) {
            four = LoadStored4(args.keys.type, bytes, args.keys.stride, p, element + d);
          } else if (d < dim) {
            for (int32_t j = 0; j < 4; ++j) {
              four.v[j] = WidenF16(exact[row * args.keys.stride + element + d + j]);
            }
          }
        } else {
          for (int32_t j = 0; j < 4 && d + j < dim; ++j) {
            four.v[j] = row < 0 ? LoadElement(args.keys.type, bytes,
                                              RowOffset(args.keys.type, args.keys.stride, p),
                                              element + d + j)
                                : WidenF16(exact[row * args.keys.stride + element + d + j]);
          }
        }
        shared.keys[i / quads * kKeyStride + i % quads] = four;
      }
    });
  }

  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void LoadQueries(const Block& block, const Args& args, const RowTile& tile,
                                          int32_t first, int32_t rows, Shared& shared) {
    const auto q = block.Use(args.q);
    const int32_t dim = args.plan.head_dim;
    const int32_t quads = PaddedQuads(args);
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int32_t i = t; i < rows * quads; i += kThreads) {
        const RowPlace place = PlaceOf(args.plan, tile, block.y(), first + i / quads);
        Floats4 four = {};
        for (int32_t j = 0; j < 4; ++j) {
          const int32_t d = i % quads * 4 + j;
          if (d < dim) four.v[j] = q[place.index * dim + d];
        }
        shared.q[i / quads * kQuads + i % quads] = four;
      }
    });
  }

  // One position with some rows, 16 lanes each.
  template <typename Block, typename Shared>
  LOCKSTEP_KERNEL static void Score(const Block& block, const Args& args, const RowTile& tile,
                                    int32_t first, int32_t rows, int32_t t, Shared& shared) {
    const auto scores = block.Use(args.scores);
    const auto positions = block.Use(args.plan.positions);
    const int32_t p = t % kScorePositions;
    const int32_t position = block.x() * kScorePositions + p;
    const int32_t quads = PaddedQuads(args);
    float acc[kThreadRows][kTreeLanes] = {};
    for (int32_t base = 0; base < quads; base += kTreeLanes / 4) {
      for (int32_t c = 0; c < kTreeLanes / 4; ++c) {
        const Floats4 key = shared.keys[p * kKeyStride + base + c];
        for (int32_t i = 0; i < kThreadRows; ++i) {
          const int32_t r = t / kScorePositions + i * kRowStep;
          if (r >= rows) break;
          const Floats4 query = shared.q[r * kQuads + base + c];
          for (int32_t j = 0; j < 4; ++j) {
            acc[i][4 * c + j] = Fma(query.v[j], key.v[j], acc[i][4 * c + j]);
          }
        }
      }
    }
    for (int32_t i = 0; i < kThreadRows; ++i) {
      const int32_t r = t / kScorePositions + i * kRowStep;
      if (r >= rows) break;
      const RowPlace place = PlaceOf(args.plan, tile, block.y(), first + r);
      const int32_t own = positions[place.query];
      if (position > own || position < args.plan.FirstOf(own)) continue;
      float score = SumLanes(acc[i]) * args.scale;
      if (args.cap != 0.0f) score = SoftCap(score, args.cap);
      scores[place.index * args.plan.score_stride + position] = score;
    }
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_SCORE_KERNEL_H_
