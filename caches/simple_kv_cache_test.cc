#include "caches/simple_kv_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

constexpr KvGeometry kGeometry = {
    .num_layers = 3, .num_kv_heads = 3, .head_dim = 5, .max_length = 8};

// n rows that tell layer, position, element and K from V apart; `salt` tells versions apart.
std::vector<float> Rows(std::span<const int32_t> positions, int salt, float sign) {
  std::vector<float> rows;
  for (int32_t position : positions) {
    for (int64_t i = 0; i < kGeometry.kv_stride(); ++i) {
      rows.push_back(sign * static_cast<float>(10000 * salt + 100 * position + i));
    }
  }
  return rows;
}

void Write(KvCache* cache, int32_t layer, std::vector<int32_t> positions, int salt) {
  cache->Update(layer, positions, Rows(positions, salt, 1.0f), Rows(positions, salt, -1.0f));
}

KvRows Read(const KvCache& cache, int32_t layer) {
  KvView view;
  cache.View(layer, &view);
  return DecodeRows(view, cache.geometry().kv_stride());
}

// C3: the two write paths leave the same cache.
TEST(SimpleKvCacheTest, C3DirectPathEqualsUpdate) {
  SimpleKvCache direct(kGeometry), legacy(kGeometry);
  const std::vector<int32_t> positions = {0, 1, 2};
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    Write(&legacy, layer, positions, layer);
    const auto slot = direct.TryReserveSlot(layer, positions);
    ASSERT_TRUE(slot);
    const auto keys = Rows(positions, layer, 1.0f), values = Rows(positions, layer, -1.0f);
    ASSERT_EQ(slot->keys.size(), keys.size());
    ASSERT_EQ(slot->values.size(), values.size());
    std::copy(keys.begin(), keys.end(), slot->keys.begin());
    std::copy(values.begin(), values.end(), slot->values.begin());
    EXPECT_EQ(direct.length(layer), 0);
    direct.CommitSlot(layer, positions);
    EXPECT_EQ(Read(direct, layer).keys, keys);
    EXPECT_EQ(Read(direct, layer).values, values);
  }
  EXPECT_EQ(DigestOfCache(direct), DigestOfCache(legacy));
  EXPECT_EQ(direct.StorageDigest(), legacy.StorageDigest());
}

// V2: a gap reads +0.0f by either path, though the memory was poisoned and used before.
TEST(SimpleKvCacheTest, V2GapRowsAreZeroAfterUpdateAndCommit) {
  for (bool direct : {false, true}) {
    SimpleKvCache cache(kGeometry);
    Write(&cache, 1, {0, 1, 2, 3, 4, 5}, 1);
    cache.Rollback(1);
    if (direct) {
      const std::array<int32_t, 1> positions = {4};
      const auto slot = cache.TryReserveSlot(1, positions);
      ASSERT_TRUE(slot);
      std::ranges::fill(slot->keys, 7.0f);
      std::ranges::fill(slot->values, 7.0f);
      cache.CommitSlot(1, positions);
    } else {
      Write(&cache, 1, {4}, 2);
    }
    const KvRows rows = Read(cache, 1);
    const auto stride = static_cast<size_t>(kGeometry.kv_stride());
    for (size_t i = stride; i < 4 * stride; ++i) {
      EXPECT_EQ(CanonicalBits(rows.keys[i]), 0u) << i;
      EXPECT_EQ(CanonicalBits(rows.values[i]), 0u) << i;
    }
  }
}

}  // namespace
}  // namespace lockstep
