// matmul on NEON: integer dot products by instructions for bytes; the float types are portable,
// which makes the same code of them.
#ifndef LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/neon_dots.h"
#include "engine/kernels/neon_vectors.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/portable_matmul.h"
#include "engine/kernels/quant_format.h"
#include "engine/kernels/quant_lines.h"

namespace lockstep::internal {
namespace {

// Block b of T tokens, for all 16 rows of a group: acc = fma(F32(s), scale * dx, acc) of each
// sub-block, and its low.
template <GgmlType kType, size_t T>
inline void AddBlockNeon(const uint8_t* group, const ActivationBlock* const (&x)[T], int32_t b,
                         Chains<T>* chains) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const uint8_t* lines = group + CodesAt(kFormat, b);
  const BlockScales<kType> scales = LoadScales<kType>(group, b);
  for (int32_t sub = 0; sub < kFormat.subs(); ++sub) {
    float input[T];
    if constexpr (kFormat.lows) {
      for (size_t t = 0; t < T; ++t) input[t] = InputSum<kType>(*x[t], sub);
    }
    for (int p = 0; p < kParts; ++p) {  // 4 rows at a time: 16 bytes of each line
      int32x4_t dots[T];
      SubBlockDots<kType, T>(lines + p * kVectorBytes, x, sub, dots);
      for (size_t t = 0; t < T; ++t) {
        const float32x4_t dw = NeonFloats(scales.scale[sub].part[p]);
        Floats& chain = chains->chain[t].part[p];
        float32x4_t next =
            vfmaq_f32(NeonFloats(chain), vcvtq_f32_s32(dots[t]), vmulq_n_f32(dw, x[t]->scale));
        if constexpr (kFormat.lows) {
          next = vfmaq_n_f32(next, NeonFloats(scales.low[sub].part[p]), input[t]);
        }
        chain = LaneFloats(next);
      }
    }
  }
}

// Group g of the outputs of T tokens from token `first` on: seg256, 8 blocks a segment.
template <GgmlType kType, size_t T>
inline void MatmulTileNeon(const PackedView& w, const Activations& x, int32_t g, int64_t first,
                           float* const* y) {
  const uint8_t* group = GroupOf(w, g);
  const int32_t blocks = x.cols / kBlock;
  Chains<T> chains;
  for (int32_t b = 0; b < blocks; ++b) {
    const ActivationBlock* at[T];
    for (size_t t = 0; t < T; ++t) {
      at[t] = x.blocks + (first + static_cast<int64_t>(t)) * blocks + b;
    }
    AddBlockNeon<kType, T>(group, at, b, &chains);
    if ((b + 1) % kBlocksPerSegment == 0) chains.CloseSegment();
  }
  if (blocks % kBlocksPerSegment != 0) chains.CloseSegment();
  StoreGroup(w, chains.sum, g, first, y);
}

// Tiles of 8 tokens, and of 4, 2 and 1 for the rest: the weights are read once for each.
template <GgmlType kType>
inline void MatmulOfNeon(const PackedView& w, const Activations& x, int32_t group_begin,
                         int32_t group_end, float* const* y) {
  for (int32_t g = group_begin; g < group_end; ++g) {
    int64_t t = 0;
    for (; t + 8 <= x.tokens; t += 8) MatmulTileNeon<kType, 8>(w, x, g, t, y);
    const int64_t left = x.tokens - t;
    if ((left & 4) != 0) MatmulTileNeon<kType, 4>(w, x, g, t, y);
    t += left & 4;
    if ((left & 2) != 0) MatmulTileNeon<kType, 2>(w, x, g, t, y);
    t += left & 2;
    if ((left & 1) != 0) MatmulTileNeon<kType, 1>(w, x, g, t, y);
  }
}

inline void MatmulNeon(const PackedView& w, const Activations& x, int32_t group_begin,
                       int32_t group_end, float* const* y) {
  if (!IsQuantized(w.type)) return MatmulFloats(w, x, group_begin, group_end, y);
  ForQuantType(w.type,
               [&]<GgmlType kType>() { MatmulOfNeon<kType>(w, x, group_begin, group_end, y); });
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_H_
