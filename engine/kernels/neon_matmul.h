// matmul on NEON: integer dot products by instructions for bytes; the float types are portable,
// which makes the same code of them.
#ifndef LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/halves.h"
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/neon_matmul_q4.h"
#include "engine/kernels/neon_matmul_q8.h"
#include "engine/kernels/neon_vectors.h"
#include "engine/kernels/packed_layout.h"
#include "engine/kernels/portable_matmul.h"

namespace lockstep::internal {
namespace {

// Block b of T tokens, for all 16 rows of a group: acc = fma(F32(s), F32(dw) * dx, acc).
template <GgmlType kType, size_t T>
inline void AddBlockNeon(const uint8_t* group, const ActivationBlock* const (&x)[T], int32_t b,
                         Chains<T>* chains) {
  constexpr bool kQ8 = kType == GgmlType::kQ8_0;
  constexpr int32_t kLines = kQ8 ? kQ8Lines : kQ4Lines;
  const uint8_t* lines = group + LinesAt(kLines, b);
  const Lanes dw = WidenHalves(group + ScalesAt(kLines, b));
  for (int p = 0; p < kParts; ++p) {  // 4 rows at a time: 16 bytes of each line
    int32x4_t dots[T];
    if constexpr (kQ8) {
      BlockDotsQ8<T>(lines + p * kVectorBytes, x, dots);
    } else {
      BlockDotsQ4<T>(lines + p * kVectorBytes, x, dots);
    }
    for (size_t t = 0; t < T; ++t) {
      const float32x4_t scale = vmulq_n_f32(NeonFloats(dw.part[p]), x[t]->scale);
      Floats& chain = chains->chain[t].part[p];
      chain = LaneFloats(vfmaq_f32(NeonFloats(chain), vcvtq_f32_s32(dots[t]), scale));
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
  switch (w.type) {
    case GgmlType::kQ8_0:
      return MatmulOfNeon<GgmlType::kQ8_0>(w, x, group_begin, group_end, y);
    case GgmlType::kQ4_0:
      return MatmulOfNeon<GgmlType::kQ4_0>(w, x, group_begin, group_end, y);
    default:
      return Matmul(w, x, group_begin, group_end, y);
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_NEON_MATMUL_H_
