// How a matmul's tokens are cut into tiles whose size the compiler knows.
#ifndef LOCKSTEP_ENGINE_KERNELS_TOKEN_TILES_H_
#define LOCKSTEP_ENGINE_KERNELS_TOKEN_TILES_H_

#include <cstddef>
#include <cstdint>

namespace lockstep::internal {
namespace {

// run.operator()<count>(token) for a count from 1 to kMost. REQUIRES: 0 < count <= kMost.
template <size_t kMost, typename Run>
inline void RunTile(int64_t count, int64_t token, const Run& run) {
  if constexpr (kMost > 1) {
    if (count < static_cast<int64_t>(kMost)) return RunTile<kMost - 1>(count, token, run);
  }
  run.template operator()<kMost>(token);
}

// Tokens [token, end) in tiles of nearly the same size, at most kMost: a small last tile would
// waste most of its work. With kMost of 3 or more, a tile of one token is the only one.
template <size_t kMost, typename Run>
inline void ForTiles(int64_t token, int64_t end, const Run& run) {
  constexpr auto kTokens = static_cast<int64_t>(kMost);
  for (int64_t tiles = (end - token + kTokens - 1) / kTokens; tiles > 0; --tiles) {
    const int64_t count = (end - token + tiles - 1) / tiles;
    RunTile<kMost>(count, token, run);
    token += count;
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_TOKEN_TILES_H_
