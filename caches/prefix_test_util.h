// What the tests of prefixes share: rows that depend on all that rows of an engine depend on.
#ifndef LOCKSTEP_CACHES_PREFIX_TEST_UTIL_H_
#define LOCKSTEP_CACHES_PREFIX_TEST_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "caches/digest.h"
#include "caches/kv_cache.h"
#include "caches/paged_kv_cache.h"

namespace lockstep::prefix_test {

inline constexpr KvGeometry kSmall = {
    .num_layers = 2, .num_kv_heads = 1, .head_dim = 4, .max_length = 13};

using Ids = std::vector<int32_t>;

inline Digest Key(uint64_t number) { return {number, ~number}; }

inline std::unique_ptr<PagedKvCache> NewCache(const std::shared_ptr<BlockPool>& pool) {
  return std::make_unique<PagedKvCache>(
      PagedKvCacheOptions{.geometry = kSmall, .block_size = pool->block_size(), .pool = pool});
}

inline std::shared_ptr<BlockPool> NewPool(int32_t block_size, int32_t blocks, uint64_t seed = 1) {
  return std::make_shared<BlockPool>(BlockPoolOptions{.geometry = kSmall,
                                                      .block_size = block_size,
                                                      .num_blocks = blocks,
                                                      .shuffle_seed = seed,
                                                      .poison_on_free = true});
}

// The row of the last of `ids`: K, then V, [2, kv_stride].
inline std::vector<float> RowOf(const Digest& key, std::span<const int32_t> ids, int32_t layer) {
  DigestBuilder builder;
  builder.AddU64(key.high);
  for (int32_t id : ids) builder.AddU32(static_cast<uint32_t>(id));
  builder.AddU32(static_cast<uint32_t>(layer));
  const Digest digest = builder.Finish();
  std::vector<float> row;
  for (uint64_t half : {digest.high, digest.low}) {
    for (int64_t i = 0; i < kSmall.kv_stride(); ++i) {
      row.push_back(static_cast<float>(half >> (12 * i) & 0xfffff));
    }
  }
  return row;
}

// Rows [first, ids.size()) of `ids` at every layer, in place where `direct` and where it is
// granted.
inline void Compute(const Digest& key, std::span<const int32_t> ids, bool direct,
                    PagedKvCache* cache) {
  const auto stride = static_cast<size_t>(kSmall.kv_stride());
  for (int32_t position = cache->current_length(); position < std::ssize(ids); ++position) {
    for (int32_t layer = 0; layer < kSmall.num_layers; ++layer) {
      const std::vector<float> row =
          RowOf(key, ids.first(static_cast<size_t>(position) + 1), layer);
      const std::span keys = std::span(row).first(stride), values = std::span(row).last(stride);
      const auto slot = direct ? cache->TryReserveSlot(layer, {&position, 1}) : std::nullopt;
      if (!slot) {
        cache->Update(layer, {&position, 1}, keys, values);
        continue;
      }
      std::ranges::copy(keys, slot->keys.begin());
      std::ranges::copy(values, slot->values.begin());
      cache->CommitSlot(layer, {&position, 1});
    }
  }
}

// Whether the cache holds the rows of `ids` and nothing else.
inline bool Holds(const Digest& key, std::span<const int32_t> ids, const KvCache& cache) {
  KvView view;
  for (int32_t layer = 0; layer < kSmall.num_layers; ++layer) {
    cache.View(layer, &view);
    const KvRows rows = DecodeRows(view, kSmall.kv_stride());
    if (view.length != std::ssize(ids)) return false;
    std::vector<float> keys, values;
    for (size_t n = 1; n <= ids.size(); ++n) {
      const std::vector<float> row = RowOf(key, ids.first(n), layer);
      keys.insert(keys.end(), row.begin(), row.begin() + kSmall.kv_stride());
      values.insert(values.end(), row.begin() + kSmall.kv_stride(), row.end());
    }
    if (rows.keys != keys || rows.values != values) return false;
  }
  return true;
}

}  // namespace lockstep::prefix_test

#endif  // LOCKSTEP_CACHES_PREFIX_TEST_UTIL_H_
