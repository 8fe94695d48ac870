// PagedKvCache: rows as plain F32 in blocks of a BlockPool, found through a block table.
//
// Attention reads the blocks where they lie, one segment of the view for each; neighbouring blocks
// are never merged into one segment, so a view does not depend on which blocks a sequence got.
//
// Forks share blocks copy-on-write. A block that any other sequence can read is copied, K and V of
// every layer, before a row of it is written and before a slot in it is handed out [R7].
//
// A reservation may need blocks: the one of its run, those of a gap before it, and copies of
// shared ones, so that CommitSlot cannot fail. They are provisional until rows are published in
// them. Until then the cache keeps its hold on the shared block that a copy stands for, and when
// the last reservation in the block is abandoned the copy goes back and the shared block returns
// to its place: an abandoned reservation leaves no trace in the pool [B2, B3].
#ifndef LOCKSTEP_CACHES_PAGED_KV_CACHE_H_
#define LOCKSTEP_CACHES_PAGED_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/block_pool.h"
#include "caches/kv_cache.h"
#include "caches/kv_checks.h"

namespace lockstep {

struct PagedKvCacheOptions {
  KvGeometry geometry;
  int32_t block_size = 16;  // positions; need not divide max_length
  // Shared with other sequences. Null: an own pool with just enough blocks for one sequence of
  // max_length positions.
  std::shared_ptr<BlockPool> pool = nullptr;
};

// Blocks that `rows` positions need. REQUIRES: rows >= 0, block_size > 0.
inline int32_t BlocksForRows(int32_t rows, int32_t block_size) {
  return rows / block_size + (rows % block_size != 0 ? 1 : 0);
}

class PagedKvCache final : public KvCache {
 public:
  // std::invalid_argument for a bad geometry or block size, and for a pool of another shape.
  explicit PagedKvCache(const PagedKvCacheOptions& options);
  ~PagedKvCache() override;

  const KvGeometry& geometry() const override { return geometry_; }
  std::string name() const override;  // "paged/16"
  RowType key_type() const override { return RowType::kF32; }
  RowType value_type() const override { return RowType::kF32; }

  int32_t length(int32_t layer) const override;
  int32_t current_length() const override;
  void View(int32_t layer, KvView* view) const override;

  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override;

  // A refusal leaves an open reservation of the layer in place.
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override;
  void CommitSlot(int32_t layer, std::span<const int32_t> positions) override;

  void Rollback(int32_t length) override;
  void Clear() override;
  std::unique_ptr<KvCache> Fork() override;  // on the same pool; takes no block

  Digest StorageDigest() const override;
  void SaveState(StateWriter* writer) const override;
  void LoadState(StateReader* reader) override;

  // ---- Beyond the contract ---------------------------------------------------------------

  const BlockPool& pool() const { return *pool_; }
  const std::shared_ptr<BlockPool>& shared_pool() const { return pool_; }
  int32_t block_size() const { return pool_->block_size(); }

  // The blocks of positions [0, block_size), [block_size, 2 * block_size), ...
  std::span<const int32_t> block_table() const { return table_; }

  // The shared blocks for which provisional copies stand, in order of position.
  std::vector<int32_t> retained_blocks() const;

  bool has_open_reservation() const;

  // Shares these blocks, full at every layer, as the sequence's first rows. REQUIRES: no rows, no
  // open reservation, blocks in use that fit max_length (LS_CHECK).
  void AttachBlocks(std::span<const int32_t> blocks);

  // Copies the layer's rows into one piece, [length, kv_stride] each: what an engine without
  // segments would attend to, here to compare with.
  // std::out_of_range for the layer, std::invalid_argument for a wrong number of elements.
  void GatherRows(int32_t layer, std::span<float> keys, std::span<float> values) const;

 private:
  static constexpr int32_t kNoBlock = -1;

  struct Reservation {
    PositionRun run;
    int32_t first_block = 0;  // index of the first block that the commit writes, gap included
  };

  std::optional<Reservation>& reservation_at(int32_t layer) {
    return reservations_[static_cast<size_t>(layer)];
  }
  int32_t BlocksFor(int32_t rows) const { return BlocksForRows(rows, block_size()); }
  int32_t TableSizeWithout(int32_t layer) const;
  bool CopyGoesBackWith(int32_t layer, int32_t index) const;

  // The blocks that a write to a layer will write, by index in the table.
  void ForgetTouched();
  void TouchBlock(int32_t index);
  void TouchRows(int32_t first, int32_t end);

  // Whether, once the layer's reservation is closed, the pool can give what rows [0, end) and the
  // touched blocks need. Changes nothing.
  bool CanOwnTouched(int32_t layer, int32_t end) const;

  // Closes the layer's reservation, takes the blocks and makes the touched ones exclusive.
  // A provisional copy remembers the block it stands for. REQUIRES: CanOwnTouched.
  void OwnTouched(int32_t layer, int32_t end, bool provisional);

  void CloseReservation(int32_t layer) noexcept;
  void CloseAllReservations() noexcept;
  void Publish(int32_t index) noexcept;  // the block has rows of its own: no way back
  void ShrinkTable(int32_t size) noexcept;

  float* KeyRow(int32_t layer, int32_t row);
  float* ValueRow(int32_t layer, int32_t row);
  void ZeroRows(int32_t layer, int32_t first, int32_t end);
  void PoisonRows(int32_t layer, int32_t first, int32_t end);

  KvGeometry geometry_;
  std::shared_ptr<BlockPool> pool_;
  std::vector<int32_t> lengths_;                          // [num_layers]
  std::vector<std::optional<Reservation>> reservations_;  // [num_layers]

  // Every vector below has room for all blocks of max_length positions and never allocates again.
  // table_ covers the rows of every layer and of every open reservation, and no more [B3].
  std::vector<int32_t> table_;
  std::vector<int32_t>
      retained_;                  // by table index: the shared block a copy stands for, or kNoBlock
  std::vector<int32_t> touched_;  // scratch: table indices, each once
  std::vector<uint64_t> touched_epoch_;  // by table index: the epoch that touched it last
  uint64_t epoch_ = 0;
};

// A block that stands more than once in a table; nothing when none does.
std::optional<int32_t> BlockHeldTwice(std::span<const int32_t> table);

// What is wrong with the books of a pool and of `sequences`, which must be all caches on it; one
// sentence each, empty when they balance: BlockPool::Audit, references equal to the tables and
// reservations that hold a block, no block twice in a table, and B3. `held_besides` are the blocks
// of a prefix index.
std::vector<std::string> AuditBlocks(const BlockPool& pool,
                                     std::span<const PagedKvCache* const> sequences,
                                     std::span<const int32_t> held_besides = {});

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_PAGED_KV_CACHE_H_
