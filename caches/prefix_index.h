// PrefixIndex: the blocks of a pool, found by what their rows were computed from.
//
// Rows depend on their own token, on all tokens before it, and on what computes them. So a full
// block is known by the ids of its positions, the block before it, and a key that stands for
// everything else, all under one chained hash; a sequence whose ids begin the same takes the block
// as its own, copy-on-write, and computes only the rest. As vLLM's automatic prefix caching does
// (https://docs.vllm.ai/en/latest/design/prefix_caching.html), but that a hash alone is never a
// hit: ids, key and the block before are compared [P1].
//
// What ids and keys mean is the caller's business (engine/prefix_cache.h).
//
// Threads: none. An index, its pool and all caches on it count as one object.
#ifndef LOCKSTEP_CACHES_PREFIX_INDEX_H_
#define LOCKSTEP_CACHES_PREFIX_INDEX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "caches/block_pool.h"
#include "caches/digest.h"
#include "caches/kv_cache.h"

namespace lockstep {

class PagedKvCache;

struct PrefixCounters {
  int64_t lookups = 0;        // calls of Attach
  int64_t hits = 0;           // of them, those that attached a block
  int64_t rows_attached = 0;  // positions
  int64_t registered = 0;     // blocks
  int64_t evicted = 0;        // blocks, for want of free ones
  int64_t collisions = 0;     // blocks left out, because others have their hash

  friend bool operator==(const PrefixCounters&, const PrefixCounters&) = default;
};

class PrefixIndex final : private BlockReclaimer {
 public:
  // Over the pool of `cache`, for all caches on it; keeps the pool alive. Only `hash_bits` of each
  // hash count: fewer than 128 are for tests, which want collisions.
  // Throws std::invalid_argument for a cache without blocks. REQUIRES: the pool has no other index.
  explicit PrefixIndex(const KvCache& cache, int32_t hash_bits = 128);
  ~PrefixIndex() override;

  // Gives an empty cache the blocks that are registered under `key` for the beginning of `ids`, but
  // never all of `ids`: somebody has to compute the last one, whose logits are wanted [P3]. Returns
  // the rows that the cache has now. The blocks are used now [P6].
  // Throws std::invalid_argument when the cache has rows or an open reservation, or is on another
  // pool.
  int32_t Attach(const Digest& key, std::span<const int32_t> ids, KvCache* cache);

  // Makes the full blocks of rows [0, ids.size()) known, which the cache holds, computed from these
  // ids under `key`; what is known already stays as it is. Returns how many blocks are new.
  //
  // Throws std::invalid_argument, and changes nothing, when a layer has fewer rows, when a
  // reservation is open, when the cache is on another pool, or when one of the blocks is known as
  // something else [P7]. After std::bad_alloc the first blocks may be known.
  int32_t Register(const Digest& key, std::span<const int32_t> ids, const KvCache& cache);

  // Forgets everything; blocks that nobody else holds are free then.
  void Clear();

  int32_t block_size() const { return pool_->block_size(); }  // positions
  const PrefixCounters& counters() const { return counters_; }
  std::vector<int32_t> blocks() const;  // that it holds, increasing

 private:
  static constexpr int32_t kNoBlock = -1;

  struct Entry {
    Digest hash;
    Digest key;
    int32_t parent = kNoBlock;  // the block before it; that is never forgotten sooner
    int32_t children = 0;       // blocks that have it as parent
    uint64_t used = 0;          // the call that attached or registered it last
    std::vector<int32_t> ids;   // [block_size]
  };

  int32_t reclaimable_blocks() const override;
  void Reclaim() override;

  const PagedKvCache& OnThisPool(const KvCache& cache) const;
  Entry& entry(int32_t block) { return *entries_[static_cast<size_t>(block)]; }
  Digest HashOf(const Digest& key, int32_t parent, std::span<const int32_t> ids) const;

  // The block behind `parent` that was computed from these ids, or kNoBlock.
  int32_t Find(const Digest& key, int32_t parent, std::span<const int32_t> ids) const;
  // The first blocks of `ids` that are known, at most so many.
  std::vector<int32_t> FindChain(const Digest& key, std::span<const int32_t> ids,
                                 size_t most) const;
  bool Insert(const Digest& key, int32_t parent, std::span<const int32_t> ids, int32_t block);
  void Forget(int32_t block);
  int32_t NextVictim() const;

  std::shared_ptr<BlockPool> pool_;
  int32_t hash_bits_;
  std::vector<std::optional<Entry>> entries_;  // by block
  std::map<Digest, int32_t> by_hash_;          // to the block
  uint64_t clock_ = 0;                         // calls that used blocks
  PrefixCounters counters_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_PREFIX_INDEX_H_
