// A hash table of indices into somebody else's array: open addressing, eight bytes a slot. Loading
// a vocabulary is bound by cache misses, and a node-based map has two or three more a look-up.
#ifndef LOCKSTEP_ENGINE_TOKENIZER_HASH_INDEX_H_
#define LOCKSTEP_ENGINE_TOKENIZER_HASH_INDEX_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "caches/check.h"

namespace lockstep {

class HashIndex {
 public:
  // Room for `capacity` indices. REQUIRES: capacity < 2^31.
  explicit HashIndex(size_t capacity = 0) : slots_(std::bit_ceil(capacity + capacity / 2 + 1)) {}

  // The inserted index with this hash for which same(index) holds.
  template <typename Same>
  std::optional<uint32_t> Find(uint64_t hash, const Same& same) const {
    const uint32_t tag = Tag(hash);
    for (size_t at = Home(hash); slots_[at].tag != kFree; at = Next(at)) {
      if (slots_[at].tag == tag && same(slots_[at].index)) return slots_[at].index;
    }
    return std::nullopt;
  }

  // REQUIRES: Find would not find it, and fewer than `capacity` inserted so far.
  void Insert(uint64_t hash, uint32_t index) {
    LS_CHECK(++count_ < slots_.size(), "{} indices in {} slots", count_, slots_.size());
    size_t at = Home(hash);
    while (slots_[at].tag != kFree) at = Next(at);
    slots_[at] = {Tag(hash), index};
  }

 private:
  struct Slot {
    uint32_t tag = kFree;  // bits of the hash that Home does not use, so that most misses end here
    uint32_t index = 0;
  };
  static constexpr uint32_t kFree = 0;

  static uint32_t Tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32) | 1; }
  size_t Home(uint64_t hash) const { return hash & (slots_.size() - 1); }
  size_t Next(size_t at) const { return (at + 1) & (slots_.size() - 1); }

  std::vector<Slot> slots_;  // a power of two, at most two thirds of them taken
  size_t count_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_TOKENIZER_HASH_INDEX_H_
