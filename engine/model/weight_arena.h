// The memory of a model's weights: one piece, in huge pages where the system gives them.
//
// A decode step streams all weights once. With 4 KiB pages a good part of that time is spent on
// address translation; in pages of 2 MiB it is not.
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
  // Plain memory where a mapping fails; never an error but std::bad_alloc.
  explicit WeightArena(int64_t bytes);
  ~WeightArena();
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;

  // The next `bytes`, 64-byte aligned, uninitialised. REQUIRES: that many are left, each request
  // rounded up to 64.
  std::span<std::byte> Take(int64_t bytes);

  int64_t size() const { return size_; }

  // Bytes that lie in huge pages now, as /proc/self/smaps says; 0 where it says nothing. The kernel
  // joins neighbouring mappings, so this is an upper bound of what belongs to the arena.
  int64_t HugePageBytes() const;

 private:
  void* mapping_ = nullptr;  // what munmap takes; nullptr: plain memory
  size_t mapping_bytes_ = 0;
  AlignedBuffer<std::byte> plain_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
  int64_t taken_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_WEIGHT_ARENA_H_
