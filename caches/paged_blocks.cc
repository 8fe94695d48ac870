// Which blocks a paged cache holds, takes, copies and gives back. The contract's calls are in
// paged_kv_cache.cc.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "caches/check.h"
#include "caches/paged_kv_cache.h"

namespace lockstep {

const BlockPool* PoolOf(const KvCache& cache) {
  const auto* paged = dynamic_cast<const PagedKvCache*>(&cache);
  return paged == nullptr ? nullptr : &paged->pool();
}

// ---- What a write needs ------------------------------------------------------------------

// Blocks of the table that remain when `layer` has no reservation.
int32_t PagedKvCache::TableSizeWithout(int32_t layer) const {
  int32_t rows = current_length();
  for (int32_t other = 0; other < geometry_.num_layers; ++other) {
    const auto& reservation = reservations_[static_cast<size_t>(other)];
    if (other != layer && reservation) rows = std::max(rows, reservation->run.end());
  }
  return BlocksFor(rows);
}

// True when the block at `index` is a copy made for reservations, and `layer`'s is the last one.
bool PagedKvCache::CopyGoesBackWith(int32_t layer, int32_t index) const {
  if (retained_[static_cast<size_t>(index)] == kNoBlock) return false;
  const auto writes = [&](int32_t l) {
    const auto& r = reservations_[static_cast<size_t>(l)];
    return r && index >= r->first_block && index < BlocksFor(r->run.end());
  };
  for (int32_t other = 0; other < geometry_.num_layers; ++other) {
    if (other != layer && writes(other)) return false;
  }
  return writes(layer);
}

void PagedKvCache::ForgetTouched() {
  touched_.clear();
  ++epoch_;
}

void PagedKvCache::TouchBlock(int32_t index) {
  uint64_t& epoch = touched_epoch_[static_cast<size_t>(index)];
  if (epoch == epoch_) return;
  epoch = epoch_;
  touched_.push_back(index);
}

void PagedKvCache::TouchRows(int32_t first, int32_t end) {
  for (int32_t index = first / block_size(); index < BlocksFor(end); ++index) TouchBlock(index);
}

bool PagedKvCache::CanOwnTouched(int32_t layer, int32_t end) const {
  const int32_t kept = TableSizeWithout(layer);
  int32_t available = pool_->free_blocks();
  available += static_cast<int32_t>(table_.size()) - kept;
  if (const auto& open = reservations_[static_cast<size_t>(layer)]) {
    const int32_t stop = std::min(BlocksFor(open->run.end()), kept);
    for (int32_t i = open->first_block; i < stop; ++i) {
      available += CopyGoesBackWith(layer, i) ? 1 : 0;
    }
  }

  int32_t needed = std::max(0, BlocksFor(end) - kept);
  for (int32_t i : touched_) {
    if (i >= kept) continue;
    const auto index = static_cast<size_t>(i);
    const int32_t block = CopyGoesBackWith(layer, i) ? retained_[index] : table_[index];
    needed += pool_->references(block) > 1 ? 1 : 0;
  }
  if (needed > available) available += pool_->reclaimable_blocks();
  return needed <= available;
}

void PagedKvCache::OwnTouched(int32_t layer, int32_t end, bool provisional) {
  CloseReservation(layer);
  const int32_t size = std::max(BlocksFor(end), static_cast<int32_t>(table_.size()));
  while (static_cast<int32_t>(table_.size()) < size) table_.push_back(pool_->Take());
  for (int32_t i : touched_) {
    const auto index = static_cast<size_t>(i);
    if (pool_->references(table_[index]) > 1) {
      const int32_t copy = pool_->Take();
      pool_->Copy(table_[index], copy);
      retained_[index] = table_[index];
      table_[index] = copy;
    }
    if (!provisional) Publish(i);
  }
}

void PagedKvCache::AttachBlocks(std::span<const int32_t> blocks) {
  const auto rows = static_cast<int64_t>(blocks.size()) * block_size();
  LS_CHECK(table_.empty() && rows <= geometry_.max_length, "{} rows into {} of {} with {} blocks",
           rows, name(), geometry_.max_length, table_.size());
  for (int32_t block : blocks) {
    pool_->Share(block);
    table_.push_back(block);
  }
  for (int32_t& length : lengths_) length = static_cast<int32_t>(rows);
}

// ---- Giving back -------------------------------------------------------------------------

void PagedKvCache::CloseReservation(int32_t layer) noexcept {
  auto& reservation = reservation_at(layer);
  if (!reservation) return;
  const int32_t kept = TableSizeWithout(layer);
  const int32_t end = std::min(BlocksFor(reservation->run.end()), kept);
  for (int32_t i = reservation->first_block; i < end; ++i) {
    if (!CopyGoesBackWith(layer, i)) continue;
    const auto index = static_cast<size_t>(i);
    pool_->Release(table_[index]);
    table_[index] = retained_[index];
    retained_[index] = kNoBlock;
  }
  reservation.reset();
  ShrinkTable(kept);
}

void PagedKvCache::CloseAllReservations() noexcept {
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) CloseReservation(layer);
}

void PagedKvCache::Publish(int32_t index) noexcept {
  int32_t& retained = retained_[static_cast<size_t>(index)];
  if (retained == kNoBlock) return;
  pool_->Release(retained);
  retained = kNoBlock;
}

void PagedKvCache::ShrinkTable(int32_t size) noexcept {
  while (static_cast<int32_t>(table_.size()) > size) {
    LS_CHECK(retained_[table_.size() - 1] == kNoBlock, "block {} stands for another",
             table_.back());
    pool_->Release(table_.back());
    table_.pop_back();
  }
}

// ---- Rows --------------------------------------------------------------------------------

float* PagedKvCache::KeyRow(int32_t layer, int32_t row) {
  const int32_t block = table_[static_cast<size_t>(row / block_size())];
  return pool_->mutable_keys(block, layer) + row % block_size() * geometry_.kv_stride();
}

float* PagedKvCache::ValueRow(int32_t layer, int32_t row) {
  const int32_t block = table_[static_cast<size_t>(row / block_size())];
  return pool_->mutable_values(block, layer) + row % block_size() * geometry_.kv_stride();
}

void PagedKvCache::ZeroRows(int32_t layer, int32_t first, int32_t end) {
  for (int32_t row = first; row < end; ++row) {
    std::fill_n(KeyRow(layer, row), geometry_.kv_stride(), 0.0f);
    std::fill_n(ValueRow(layer, row), geometry_.kv_stride(), 0.0f);
  }
}

// Rows that are gone show in whatever reads them, like free blocks. A block that another sequence
// reads stays as it is.
void PagedKvCache::PoisonRows(int32_t layer, int32_t first, int32_t end) {
  if (!pool_->poison_on_free()) return;
  const auto bytes = static_cast<size_t>(geometry_.kv_stride()) * sizeof(float);
  for (int32_t row = first; row < end; ++row) {
    const auto index = static_cast<size_t>(row / block_size());
    if (index >= table_.size() || pool_->references(table_[index]) > 1) return;
    std::memset(KeyRow(layer, row), pool_->poison_byte(), bytes);
    std::memset(ValueRow(layer, row), pool_->poison_byte(), bytes);
  }
}

// ---- Audit -------------------------------------------------------------------------------

namespace {

void AuditTable(const PagedKvCache& cache, int32_t sequence, std::vector<std::string>* faults) {
  const auto table = cache.block_table();
  const auto size = static_cast<int32_t>(table.size());
  const int32_t rows = cache.current_length();
  const int32_t needed = BlocksForRows(rows, cache.block_size());
  if (cache.has_open_reservation() ? size < needed : size != needed) {
    faults->push_back(fmt::format("sequence {} holds {} blocks for {} rows of {} a block", sequence,
                                  size, rows, cache.block_size()));
  }
  if (!cache.has_open_reservation() && !cache.retained_blocks().empty()) {
    faults->push_back(fmt::format("sequence {} retains blocks without a reservation", sequence));
  }
  if (const auto twice = BlockHeldTwice(table)) {
    faults->push_back(fmt::format("sequence {} has block {} twice", sequence, *twice));
  }
}

}  // namespace

std::optional<int32_t> BlockHeldTwice(std::span<const int32_t> table) {
  std::vector<int32_t> sorted(table.begin(), table.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  return twice == sorted.end() ? std::nullopt : std::optional(*twice);
}

std::vector<std::string> AuditBlocks(const BlockPool& pool,
                                     std::span<const PagedKvCache* const> sequences,
                                     std::span<const int32_t> held_besides) {
  std::vector<std::string> faults = pool.Audit();
  std::vector<int32_t> held(static_cast<size_t>(pool.num_blocks()));  // by block
  for (int32_t block : held_besides) ++held[static_cast<size_t>(block)];
  for (size_t i = 0; i < sequences.size(); ++i) {
    AuditTable(*sequences[i], static_cast<int32_t>(i), &faults);
    for (int32_t block : sequences[i]->block_table()) ++held[static_cast<size_t>(block)];
    for (int32_t block : sequences[i]->retained_blocks()) ++held[static_cast<size_t>(block)];
  }
  for (int32_t block = 0; block < pool.num_blocks(); ++block) {
    const int32_t holders = held[static_cast<size_t>(block)];
    if (pool.references(block) == holders) continue;
    faults.push_back(fmt::format("block {} has {} references and {} holders", block,
                                 pool.references(block), holders));
  }
  return faults;
}

}  // namespace lockstep
