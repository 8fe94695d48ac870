#include "caches/prefix_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "caches/check.h"
#include "caches/paged_kv_cache.h"

namespace lockstep {
namespace {

std::shared_ptr<BlockPool> SharedPoolOf(const KvCache& cache) {
  const auto* paged = dynamic_cast<const PagedKvCache*>(&cache);
  if (paged == nullptr) {
    throw std::invalid_argument(fmt::format("prefix index: {} has no blocks", cache.name()));
  }
  return paged->shared_pool();
}

Digest FirstBits(Digest digest, int32_t bits) {
  const auto mask = [](int32_t count) {
    return count <= 0 ? 0 : count >= 64 ? ~uint64_t{0} : ~(~uint64_t{0} >> count);
  };
  return {digest.high & mask(bits), digest.low & mask(bits - 64)};
}

}  // namespace

PrefixIndex::PrefixIndex(const KvCache& cache, int32_t hash_bits)
    : pool_(SharedPoolOf(cache)),
      hash_bits_(hash_bits),
      entries_(static_cast<size_t>(pool_->num_blocks())) {
  pool_->SetReclaimer(this);
}

PrefixIndex::~PrefixIndex() {
  Clear();
  pool_->SetReclaimer(nullptr);
}

const PagedKvCache& PrefixIndex::OnThisPool(const KvCache& cache) const {
  const auto* paged = dynamic_cast<const PagedKvCache*>(&cache);
  if (paged == nullptr || paged->shared_pool() != pool_) {
    throw std::invalid_argument(fmt::format("prefix index: {} is on another pool", cache.name()));
  }
  return *paged;
}

// ---- Finding -----------------------------------------------------------------------------

Digest PrefixIndex::HashOf(const Digest& key, int32_t parent, std::span<const int32_t> ids) const {
  DigestBuilder builder;
  const Digest before = parent == kNoBlock ? Digest() : entries_[static_cast<size_t>(parent)]->hash;
  for (const Digest& digest : {key, before}) {
    builder.AddU64(digest.high);
    builder.AddU64(digest.low);
  }
  for (int32_t id : ids) builder.AddU32(static_cast<uint32_t>(id));
  return FirstBits(builder.Finish(), hash_bits_);
}

int32_t PrefixIndex::Find(const Digest& key, int32_t parent, std::span<const int32_t> ids) const {
  const auto found = by_hash_.find(HashOf(key, parent, ids));
  if (found == by_hash_.end()) return kNoBlock;
  const Entry& entry = *entries_[static_cast<size_t>(found->second)];
  const bool same =
      entry.key == key && entry.parent == parent && std::ranges::equal(entry.ids, ids);
  return same ? found->second : kNoBlock;
}

std::vector<int32_t> PrefixIndex::FindChain(const Digest& key, std::span<const int32_t> ids,
                                            size_t most) const {
  std::vector<int32_t> chain;
  const auto size = static_cast<size_t>(block_size());
  while (chain.size() < most) {
    const int32_t parent = chain.empty() ? kNoBlock : chain.back();
    const int32_t block = Find(key, parent, ids.subspan(chain.size() * size, size));
    if (block == kNoBlock) break;
    chain.push_back(block);
  }
  return chain;
}

int32_t PrefixIndex::Attach(const Digest& key, std::span<const int32_t> ids, KvCache* cache) {
  const PagedKvCache& paged = OnThisPool(*cache);
  if (!paged.block_table().empty()) {
    throw std::invalid_argument("prefix index: the cache is not empty");
  }
  const auto size = static_cast<size_t>(block_size());
  const size_t others = ids.empty() ? 0 : ids.size() - 1;
  const size_t room = static_cast<size_t>(paged.max_length()) / size;
  const std::vector<int32_t> chain = FindChain(key, ids, std::min(others / size, room));
  ++counters_.lookups;
  if (chain.empty()) return 0;
  ++clock_;
  for (int32_t block : chain) entry(block).used = clock_;
  static_cast<PagedKvCache*>(cache)->AttachBlocks(chain);
  const auto rows = static_cast<int32_t>(chain.size() * size);
  ++counters_.hits;
  counters_.rows_attached += rows;
  return rows;
}

// ---- Registering -------------------------------------------------------------------------

int32_t PrefixIndex::Register(const Digest& key, std::span<const int32_t> ids,
                              const KvCache& cache) {
  const PagedKvCache& paged = OnThisPool(cache);
  for (int32_t layer = 0; layer < paged.geometry().num_layers; ++layer) {
    if (std::cmp_greater_equal(paged.length(layer), ids.size())) continue;
    throw std::invalid_argument(fmt::format("prefix index: layer {} has {} rows and not {}", layer,
                                            paged.length(layer), ids.size()));
  }
  if (paged.has_open_reservation()) {
    throw std::invalid_argument("prefix index: a reservation is open, its rows may change");
  }
  const auto size = static_cast<size_t>(block_size());
  const size_t full = ids.size() / size;
  std::vector<int32_t> chain = FindChain(key, ids, full);
  const auto table = paged.block_table().first(full);
  for (int32_t block : table.subspan(chain.size())) {
    if (!entries_[static_cast<size_t>(block)]) continue;
    throw std::invalid_argument(fmt::format("prefix index: block {} is something else", block));
  }
  ++clock_;
  for (int32_t block : chain) entry(block).used = clock_;
  int32_t registered = 0;
  int32_t parent = chain.empty() ? kNoBlock : chain.back();
  for (size_t i = chain.size(); i < full; ++i) {
    if (!Insert(key, parent, ids.subspan(i * size, size), table[i])) break;
    parent = table[i];
    ++registered;
  }
  counters_.registered += registered;
  return registered;
}

// False when others have the hash: what follows could be found by nobody.
bool PrefixIndex::Insert(const Digest& key, int32_t parent, std::span<const int32_t> ids,
                         int32_t block) {
  Entry added = {.hash = HashOf(key, parent, ids),
                 .key = key,
                 .parent = parent,
                 .children = 0,
                 .used = clock_,
                 .ids = {ids.begin(), ids.end()}};
  if (!by_hash_.emplace(added.hash, block).second) {
    ++counters_.collisions;
    return false;
  }
  entries_[static_cast<size_t>(block)] = std::move(added);  // nothing fails from here on
  if (parent != kNoBlock) ++entry(parent).children;
  pool_->Share(block);
  return true;
}

// ---- Forgetting --------------------------------------------------------------------------

void PrefixIndex::Forget(int32_t block) {
  const Entry& forgotten = entry(block);
  LS_CHECK(forgotten.children == 0, "block {} is before {} others", block, forgotten.children);
  if (forgotten.parent != kNoBlock) --entry(forgotten.parent).children;
  by_hash_.erase(forgotten.hash);
  entries_[static_cast<size_t>(block)].reset();
  pool_->Release(block);
}

// Of the blocks that are before no other: the one that nobody else holds and that was used longest
// ago. Where others hold all of these, one of theirs, so that the blocks before it have their turn.
int32_t PrefixIndex::NextVictim() const {
  int32_t victim = kNoBlock;
  std::tuple<bool, uint64_t> least;
  for (int32_t block = 0; block < pool_->num_blocks(); ++block) {
    const auto& entry = entries_[static_cast<size_t>(block)];
    if (!entry || entry->children > 0) continue;
    const std::tuple order(pool_->references(block) > 1, entry->used);
    if (victim != kNoBlock && order >= least) continue;
    victim = block;
    least = order;
  }
  return victim;
}

int32_t PrefixIndex::reclaimable_blocks() const {
  int32_t count = 0;
  for (int32_t block = 0; block < pool_->num_blocks(); ++block) {
    const bool held = entries_[static_cast<size_t>(block)].has_value();
    count += held && pool_->references(block) == 1 ? 1 : 0;
  }
  return count;
}

void PrefixIndex::Reclaim() {
  for (const int32_t free = pool_->free_blocks(); pool_->free_blocks() == free;) {
    const int32_t victim = NextVictim();
    LS_CHECK(victim != kNoBlock, "no block to give up");
    Forget(victim);
    ++counters_.evicted;
  }
}

void PrefixIndex::Clear() {
  for (int32_t block : blocks()) {
    entries_[static_cast<size_t>(block)].reset();
    pool_->Release(block);
  }
  by_hash_.clear();
}

std::vector<int32_t> PrefixIndex::blocks() const {
  std::vector<int32_t> held;
  for (size_t block = 0; block < entries_.size(); ++block) {
    if (entries_[block]) held.push_back(static_cast<int32_t>(block));
  }
  return held;
}

}  // namespace lockstep
