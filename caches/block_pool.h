// BlockPool: the memory that paged caches share, cut into blocks of block_size positions.
//
// A block covers its positions at *all* layers, keys and values alike, so a sequence needs one
// block table, and taking or copying a block happens once per block_size positions instead of once
// per layer. The same choice as vLLM's block tables (Kwon et al., "Efficient Memory Management for
// Large Language Model Serving with PagedAttention", SOSP 2023, section 4).
//
// Each block has a reference count: the number of block tables and open reservations that hold it.
// Wrong use of a block (out of range, free, shared when it must be exclusive) is a bug of the
// caller's code and stops the program (LS_CHECK); only an empty pool is an ordinary event.
//
// Threads: none. A pool and all caches on it count as one object.
#ifndef LOCKSTEP_CACHES_BLOCK_POOL_H_
#define LOCKSTEP_CACHES_BLOCK_POOL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/kv_cache.h"
#include "caches/random.h"

namespace lockstep {

// Where things lie in a pool. Offsets count floats from the pool's first and are 64-bit [U7].
//
//   pool   [num_blocks][num_layers][K, V] planes
//   plane  [block_size, kv_stride], padded to whole cache lines so that row 0 is always aligned
struct BlockLayout {
  BlockLayout() = default;
  // Throws std::invalid_argument for a bad geometry or block size, or when a block overflows.
  BlockLayout(const KvGeometry& geometry, int32_t block_size);

  int64_t keys_offset(int32_t block, int32_t layer) const {
    return int64_t{block} * block_elements + int64_t{layer} * 2 * plane_elements;
  }
  int64_t values_offset(int32_t block, int32_t layer) const {
    return keys_offset(block, layer) + plane_elements;
  }

  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;      // positions
  int64_t plane_elements = 0;  // floats of one layer's K (or V) in one block, padding included
  int64_t block_elements = 0;  // floats of one block, all layers

  friend bool operator==(const BlockLayout&, const BlockLayout&) = default;
};

struct BlockPoolOptions {
  KvGeometry geometry;     // max_length is the caches' concern, it only has to be positive
  int32_t block_size = 0;  // positions
  int32_t num_blocks = 0;
  // Without a seed blocks are taken in the order 0, 1, 2, ... and a released block is the next to
  // be taken. With one, the order is a repeatable shuffle, so that neighbouring positions do not
  // get neighbouring blocks by luck.
  std::optional<uint64_t> shuffle_seed = std::nullopt;
  // Fill a block with poison_byte() when it becomes free: it shows in whatever reads it later.
  bool poison_on_free = PoisonsNewMemory();
};

// Somebody who holds blocks of a pool and can do without them when it runs out.
class BlockReclaimer {
 public:
  virtual ~BlockReclaimer() = default;
  BlockReclaimer(const BlockReclaimer&) = delete;
  BlockReclaimer& operator=(const BlockReclaimer&) = delete;

  // Blocks that nobody else holds: so many calls of Reclaim free one each.
  virtual int32_t reclaimable_blocks() const = 0;
  // Frees one, and allocates nothing. REQUIRES: reclaimable_blocks() > 0.
  virtual void Reclaim() = 0;

 protected:
  BlockReclaimer() = default;
};

class BlockPool {
 public:
  // Throws std::invalid_argument for a bad geometry, block size or number of blocks.
  explicit BlockPool(const BlockPoolOptions& options);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  const BlockLayout& layout() const { return layout_; }
  int32_t block_size() const { return layout_.block_size; }
  int32_t num_blocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_blocks() const { return static_cast<int32_t>(free_.size()); }
  int32_t used_blocks() const { return num_blocks() - free_blocks(); }
  bool poison_on_free() const { return poison_on_free_; }
  unsigned char poison_byte() const { return memory_.poison_byte(); }
  int32_t references(int32_t block) const;  // 0 for a free block

  // Asked when no block is free; not owned, nullptr: nobody. REQUIRES: nobody was asked so far, or
  // nobody will be from now on.
  void SetReclaimer(BlockReclaimer* reclaimer);
  // Blocks that Take would get by reclaiming, beside the free ones.
  int32_t reclaimable_blocks() const {
    return reclaimer_ == nullptr ? 0 : reclaimer_->reclaimable_blocks();
  }

  // A free block, now with one reference and unspecified content; with none left a reclaimed one.
  // REQUIRES: free_blocks() + reclaimable_blocks() > 0.
  int32_t Take();

  // One more holder of a used block.
  void Share(int32_t block);

  // One holder less; the block is free after the last one.
  void Release(int32_t block);

  // Copies K and V of every layer. REQUIRES: `to` has exactly one reference.
  void Copy(int32_t from, int32_t to);

  // Rows of one layer: [block_size, kv_stride].
  const float* keys(int32_t block, int32_t layer) const;
  const float* values(int32_t block, int32_t layer) const;

  // The same rows for writing. REQUIRES: the block has exactly one reference; a block that
  // somebody else can read is never written.
  float* mutable_keys(int32_t block, int32_t layer);
  float* mutable_values(int32_t block, int32_t layer);

  // AuditBooks of this pool.
  std::vector<std::string> Audit() const;

 private:
  void CheckUsed(int32_t block) const;
  const float* At(int64_t offset) const { return memory_.data() + offset; }

  BlockLayout layout_;
  AlignedBuffer<float> memory_;      // [num_blocks, block_elements]
  std::vector<int32_t> references_;  // [num_blocks]
  std::vector<int32_t> free_;        // a stack; capacity num_blocks, so it never allocates again
  std::optional<Random> shuffle_;
  bool poison_on_free_;
  BlockReclaimer* reclaimer_ = nullptr;
};

// The pool whose blocks a cache and its forks share; nullptr for a cache without blocks, and for
// one that is wrapped in another.
const BlockPool* PoolOf(const KvCache& cache);

// What is wrong with a pool's books, one sentence each; empty when they balance: every block is
// either free, once, with no references, or used with at least one. `references` by block.
std::vector<std::string> AuditBooks(std::span<const int32_t> references,
                                    std::span<const int32_t> free);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_BLOCK_POOL_H_
