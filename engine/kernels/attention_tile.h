// How attention kernels lay out their scratch: one row of scores for each query head of a tile,
// then the decoded keys of a few positions.
#ifndef LOCKSTEP_ENGINE_KERNELS_ATTENTION_TILE_H_
#define LOCKSTEP_ENGINE_KERNELS_ATTENTION_TILE_H_

#include <cstdint>

namespace lockstep::internal {
namespace {

// Query heads that share one pass over K or V rows, at most.
inline constexpr int32_t kAttentionRows = 16;

// Positions whose keys are decoded at a time, at most.
inline constexpr int32_t kKeyRows = 16;

// Floats from one row of scores or keys to the next: whole vectors of 16, so that rows stay
// aligned.
inline int64_t ScoreStride(int32_t elements) { return (int64_t{elements} + 15) / 16 * 16; }

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_ATTENTION_TILE_H_
