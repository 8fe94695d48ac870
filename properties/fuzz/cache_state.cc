#include "properties/fuzz/cache_state.h"

#include <algorithm>

#include "caches/digest.h"

namespace lockstep::fuzz {
namespace {

void AddFew(int64_t number, DigestBuilder* state) {
  state->AddU32(static_cast<uint32_t>(std::min<int64_t>(number, 3)));
}

// Where in a block, in the window's ring or in the ring of a layer that forgets the length is,
// where the first row is that such a layer still has, and whether layers agree about the length.
void AddPhases(const CacheSpec& spec, const KvCache& cache, DigestBuilder* state) {
  const int32_t length = cache.length(0);
  const int32_t ring = RingRows(cache, 0);
  const int32_t period = std::max({spec.block_size, spec.window, ring, 1});
  state->AddU32(static_cast<uint32_t>(length % period));
  if (ring > 0) state->AddU32(static_cast<uint32_t>(cache.first_position(0) % ring));
  AddFew(length / period, state);
  bool agree = true;
  for (int32_t layer = 1; layer < cache.geometry().num_layers; ++layer) {
    agree = agree && cache.length(layer) == length;
  }
  state->AddU32(agree ? 1 : 0);
}

// The shape of the free list, as pieces of free blocks between used ones, and how often the blocks
// are shared.
void AddBlocks(const BlockCounts& blocks, DigestBuilder* state) {
  int64_t pieces = 0;
  int64_t shared = 0;
  int32_t most = 0;
  for (size_t i = 0; i < blocks.references.size(); ++i) {
    const bool begins = i == 0 || blocks.references[i - 1] != 0;
    pieces += blocks.references[i] == 0 && begins ? 1 : 0;
    shared += blocks.references[i] > 1 ? 1 : 0;
    most = std::max(most, blocks.references[i]);
  }
  AddFew(pieces, state);
  AddFew(shared, state);
  AddFew(most, state);
  AddFew(blocks.free_blocks, state);
}

}  // namespace

uint64_t CacheStateFeature(const CacheSpec& spec, const KvCache& cache, int32_t open) {
  DigestBuilder state;
  state.AddText(spec.name);
  AddFew(open, &state);
  AddPhases(spec, cache, &state);
  if (const auto blocks = BlockCountsOf(cache)) AddBlocks(*blocks, &state);
  return state.Finish().low;
}

}  // namespace lockstep::fuzz
