// The memory of a model's weights: one piece, which a decode step streams through once.
#ifndef LOCKSTEP_ENGINE_MODEL_WEIGHT_ARENA_H_
#define LOCKSTEP_ENGINE_MODEL_WEIGHT_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "caches/aligned_buffer.h"

namespace lockstep {

class WeightArena {
 public:
  WeightArena() = default;
  explicit WeightArena(int64_t bytes);

  // The next `bytes`, 64-byte aligned, uninitialised. REQUIRES: that many are left, each request
  // rounded up to 64.
  std::span<std::byte> Take(int64_t bytes);

  int64_t size() const { return static_cast<int64_t>(memory_.size()); }

  // Bytes that lie in huge pages now (caches/huge_pages.h).
  int64_t HugePageBytes() const;

 private:
  AlignedBuffer<std::byte> memory_;
  int64_t taken_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_WEIGHT_ARENA_H_
