#include "caches/paged_kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "caches/cache_file.h"
#include "caches/check.h"

namespace lockstep {
namespace {

KvGeometry Checked(const KvGeometry& geometry) {
  CheckGeometry(geometry);
  return geometry;
}

std::shared_ptr<BlockPool> PoolFor(const PagedKvCacheOptions& options) {
  const BlockLayout layout(options.geometry, options.block_size);
  if (!options.pool) {
    return std::make_shared<BlockPool>(BlockPoolOptions{
        .geometry = options.geometry,
        .block_size = options.block_size,
        .num_blocks = BlocksForRows(options.geometry.max_length, options.block_size)});
  }
  if (options.pool->layout() != layout) {
    throw std::invalid_argument("paged cache: the pool's blocks have another shape");
  }
  return options.pool;
}

StateHeader HeaderOf(const KvGeometry& geometry) { return {.kind = "paged", .geometry = geometry}; }

}  // namespace

PagedKvCache::PagedKvCache(const PagedKvCacheOptions& options)
    : geometry_(Checked(options.geometry)),
      pool_(PoolFor(options)),
      lengths_(static_cast<size_t>(geometry_.num_layers)),
      reservations_(static_cast<size_t>(geometry_.num_layers)) {
  const auto blocks = static_cast<size_t>(BlocksFor(geometry_.max_length));
  table_.reserve(blocks);
  retained_.assign(blocks, kNoBlock);
  touched_.reserve(blocks);
  touched_epoch_.assign(blocks, 0);
}

PagedKvCache::~PagedKvCache() {
  CloseAllReservations();
  ShrinkTable(0);
}

std::string PagedKvCache::name() const { return fmt::format("paged/{}", block_size()); }

int32_t PagedKvCache::length(int32_t layer) const {
  CheckLayer(geometry_, layer);
  return lengths_[static_cast<size_t>(layer)];
}

int32_t PagedKvCache::current_length() const {
  return *std::max_element(lengths_.begin(), lengths_.end());
}

void PagedKvCache::View(int32_t layer, KvView* view) const {
  view->length = length(layer);
  view->segments.clear();
  for (int32_t first = 0, index = 0; first < view->length; ++index) {
    const int32_t block = table_[static_cast<size_t>(index)];
    const int32_t count = std::min(block_size(), view->length - first);
    view->segments.push_back(
        {.first = first,
         .count = count,
         .keys = reinterpret_cast<const std::byte*>(pool_->keys(block, layer)),
         .values = reinterpret_cast<const std::byte*>(pool_->values(block, layer))});
    first += count;
  }
}

void PagedKvCache::Update(int32_t layer, std::span<const int32_t> positions,
                          std::span<const float> keys, std::span<const float> values) {
  const int32_t end = CheckUpdate(geometry_, layer, positions, keys, values);
  if (positions.empty()) return;
  int32_t& length = lengths_[static_cast<size_t>(layer)];
  ForgetTouched();
  for (int32_t position : positions) TouchBlock(position / block_size());
  TouchRows(length, end);  // the rows of a gap are written too
  const int32_t new_length = std::max(length, end);
  if (!CanOwnTouched(layer, new_length)) {
    throw PoolExhausted(
        fmt::format("{}: Update of {} rows at layer {} finds too few free blocks: "
                    "{} of {} are free",
                    name(), positions.size(), layer, pool_->free_blocks(), pool_->num_blocks()));
  }
  OwnTouched(layer, new_length, /*provisional=*/false);
  ZeroRows(layer, length, end);
  const auto stride = static_cast<size_t>(geometry_.kv_stride());
  for (size_t i = 0; i < positions.size(); ++i) {
    std::copy_n(&keys[i * stride], stride, KeyRow(layer, positions[i]));
    std::copy_n(&values[i * stride], stride, ValueRow(layer, positions[i]));
  }
  length = new_length;
}

std::optional<KvSlot> PagedKvCache::TryReserveSlot(int32_t layer,
                                                   std::span<const int32_t> positions) {
  CheckLayer(geometry_, layer);
  const auto run = AsRun(positions, geometry_.max_length);
  if (!run) return std::nullopt;
  const int32_t block = run->first / block_size();
  if ((run->end() - 1) / block_size() != block) return std::nullopt;

  const int32_t first_row = std::min(length(layer), run->first);  // CommitSlot writes a gap too
  ForgetTouched();
  TouchRows(first_row, run->end());
  if (!CanOwnTouched(layer, run->end())) return std::nullopt;
  OwnTouched(layer, run->end(), /*provisional=*/true);
  reservation_at(layer) = Reservation{.run = *run, .first_block = first_row / block_size()};
  const auto elements = static_cast<size_t>(run->count * geometry_.kv_stride());
  return KvSlot{.keys = {KeyRow(layer, run->first), elements},
                .values = {ValueRow(layer, run->first), elements}};
}

void PagedKvCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  CheckLayer(geometry_, layer);
  auto& reservation = reservation_at(layer);
  int32_t& length = lengths_[static_cast<size_t>(layer)];
  const auto open = reservation ? std::optional(reservation->run) : std::nullopt;
  if (DecideCommit(positions, open, length, geometry_.max_length) == CommitAction::kNothing) return;
  ZeroRows(layer, length, open->first);
  for (int32_t i = reservation->first_block; i < BlocksFor(open->end()); ++i) Publish(i);
  length = std::max(length, open->end());
  reservation.reset();
}

void PagedKvCache::Rollback(int32_t length) {
  CheckRollback(length, current_length());
  CloseAllReservations();
  ShrinkTable(BlocksFor(length));
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    int32_t& old = lengths_[static_cast<size_t>(layer)];
    if (old <= length) continue;
    PoisonRows(layer, length, old);
    old = length;
  }
}

void PagedKvCache::Clear() { Rollback(0); }

std::unique_ptr<KvCache> PagedKvCache::Fork() {
  auto fork = std::make_unique<PagedKvCache>(
      PagedKvCacheOptions{.geometry = geometry_, .block_size = block_size(), .pool = pool_});
  CloseAllReservations();  // after what can throw
  for (int32_t block : table_) {
    pool_->Share(block);
    fork->table_.push_back(block);
  }
  std::copy(lengths_.begin(), lengths_.end(), fork->lengths_.begin());
  return fork;
}

Digest PagedKvCache::StorageDigest() const { return DigestOfStoredRows(*this); }

void PagedKvCache::SaveState(StateWriter* writer) const {
  writer->WriteHeader(HeaderOf(geometry_));
  writer->WriteLengths(lengths_);
  const int64_t row_bytes = RowBytes(RowType::kF32, geometry_.kv_stride());
  KvView view;
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    View(layer, &view);
    for (const KvSegment& s : view.segments) {
      writer->WriteBytes({s.keys, static_cast<size_t>(s.count * row_bytes)});
    }
    for (const KvSegment& s : view.segments) {
      writer->WriteBytes({s.values, static_cast<size_t>(s.count * row_bytes)});
    }
  }
}

void PagedKvCache::LoadState(StateReader* reader) {
  reader->ExpectHeader(HeaderOf(geometry_));
  const std::vector<int32_t> lengths = reader->ReadLengths(geometry_);  // [num_layers]
  const int64_t row_bytes = RowBytes(RowType::kF32, geometry_.kv_stride());
  int64_t bytes = 0;
  for (const int64_t length : lengths) bytes += 2 * length * row_bytes;
  reader->ExpectRemaining(bytes);

  const int32_t needed = BlocksFor(*std::max_element(lengths.begin(), lengths.end()));
  int32_t available = pool_->free_blocks() + pool_->reclaimable_blocks();
  for (int32_t block : table_) available += pool_->references(block) == 1 ? 1 : 0;
  for (int32_t block : retained_blocks()) available += pool_->references(block) == 1 ? 1 : 0;
  if (needed > available) {
    throw PoolExhausted(fmt::format("{}: restoring needs {} blocks, {} of {} are or become free",
                                    name(), needed, available, pool_->num_blocks()));
  }
  Clear();  // from here on nothing can fail
  while (static_cast<int32_t>(table_.size()) < needed) table_.push_back(pool_->Take());
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    const int32_t length = lengths[static_cast<size_t>(layer)];
    const auto read_rows = [&](auto row_of) {
      for (int32_t first = 0; first < length;) {
        const int32_t count = std::min(block_size(), length - first);
        auto* rows = reinterpret_cast<std::byte*>((this->*row_of)(layer, first));
        reader->ReadBytes({rows, static_cast<size_t>(count * row_bytes)});
        first += count;
      }
    };
    read_rows(&PagedKvCache::KeyRow);
    read_rows(&PagedKvCache::ValueRow);
    lengths_[static_cast<size_t>(layer)] = length;
  }
}

std::vector<int32_t> PagedKvCache::retained_blocks() const {
  std::vector<int32_t> blocks;
  for (int32_t block : retained_) {
    if (block != kNoBlock) blocks.push_back(block);
  }
  return blocks;
}

bool PagedKvCache::has_open_reservation() const {
  return std::any_of(reservations_.begin(), reservations_.end(),
                     [](const auto& reservation) { return reservation.has_value(); });
}

void PagedKvCache::GatherRows(int32_t layer, std::span<float> keys, std::span<float> values) const {
  KvView view;
  View(layer, &view);
  const auto stride = static_cast<size_t>(geometry_.kv_stride());
  const size_t elements = static_cast<size_t>(view.length) * stride;
  if (keys.size() != elements || values.size() != elements) {
    throw std::invalid_argument(
        fmt::format("GatherRows: {} rows need {} keys and values, got {} "
                    "and {}",
                    view.length, elements, keys.size(), values.size()));
  }
  for (const KvSegment& s : view.segments) {
    const size_t offset = static_cast<size_t>(s.first) * stride;
    const size_t bytes = static_cast<size_t>(s.count) * stride * sizeof(float);
    std::memcpy(&keys[offset], s.keys, bytes);
    std::memcpy(&values[offset], s.values, bytes);
  }
}

}  // namespace lockstep
