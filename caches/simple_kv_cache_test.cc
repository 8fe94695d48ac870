#include "caches/simple_kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "caches/memory_watch.h"
#include "caches/storage_test_util.h"

namespace lockstep {
namespace {

using storage_test::Range;
using storage_test::Read;
using storage_test::Rows;
using storage_test::SameBits;
using storage_test::SnapshotOf;
using storage_test::Write;
using storage_test::WriteAll;

// Rows of 15 elements: no row but each layer's first is aligned by luck.
constexpr KvGeometry kGeometry = {
    .num_layers = 3, .num_kv_heads = 3, .head_dim = 5, .max_length = 8};

// Reserve, write, commit.
void WriteDirect(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions,
                 int32_t version) {
  const auto slot = cache->TryReserveSlot(layer, positions);
  ASSERT_TRUE(slot);
  const auto keys = Rows(kGeometry, layer, positions, version, true);
  const auto values = Rows(kGeometry, layer, positions, version, false);
  ASSERT_EQ(slot->keys.size(), keys.size());
  ASSERT_EQ(slot->values.size(), values.size());
  std::ranges::copy(keys, slot->keys.begin());
  std::ranges::copy(values, slot->values.begin());
  cache->CommitSlot(layer, positions);
}

TEST(SimpleKvCacheTest, C3DirectPathEqualsUpdate) {
  SimpleKvCache direct(kGeometry), legacy(kGeometry);
  const std::vector<std::vector<int32_t>> runs = {{0, 1, 2}, {3}, {1, 2}, {6, 7}, {2, 3, 4}};
  for (size_t i = 0; i < runs.size(); ++i) {
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      Write(&legacy, layer, runs[i], static_cast<int32_t>(i));
      WriteDirect(&direct, layer, runs[i], static_cast<int32_t>(i));
      EXPECT_EQ(SnapshotOf(direct), SnapshotOf(legacy)) << "run " << i << " layer " << layer;
    }
  }
}

// V2: a gap reads +0.0f by either path, though the memory was poisoned and used before.
TEST(SimpleKvCacheTest, V2GapRowsAreZeroAfterUpdateAndCommit) {
  for (const std::vector<int32_t>& positions : {std::vector<int32_t>{4}, {4, 6}, {6, 4}}) {
    for (bool direct : {false, true}) {
      SimpleKvCache cache(kGeometry);
      Write(&cache, 1, Range(0, 7), 1);
      cache.Rollback(1);
      if (direct) {
        WriteDirect(&cache, 1, {4}, 2);
      } else {
        Write(&cache, 1, positions, 2);
      }
      const KvRows rows = Read(cache, 1);
      const auto stride = static_cast<size_t>(kGeometry.kv_stride());
      for (size_t i = stride; i < 4 * stride; ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(rows.keys[i]), 0u) << i;
        EXPECT_EQ(std::bit_cast<uint32_t>(rows.values[i]), 0u) << i;
      }
    }
  }
}

// V2: so do rows that were reserved and filled but never committed.
TEST(SimpleKvCacheTest, V2AbandonedRowsAreZero) {
  SimpleKvCache cache(kGeometry);
  const auto slot = cache.TryReserveSlot(0, Range(0, 5));
  ASSERT_TRUE(slot);
  std::ranges::fill(slot->keys, 7.0f);
  std::ranges::fill(slot->values, 7.0f);
  WriteDirect(&cache, 0, {5}, 1);
  const KvRows rows = Read(cache, 0);
  const auto gap = static_cast<size_t>(5 * kGeometry.kv_stride());
  const std::vector<float> zeros(gap);
  EXPECT_TRUE(SameBits(std::span(rows.keys).first(gap), zeros));
  EXPECT_TRUE(SameBits(std::span(rows.values).first(gap), zeros));
}

// R4, R5: the spans lie in the cache's own rows, K and V apart, and nothing shows until commit.
TEST(SimpleKvCacheTest, R4R5SlotsAliasTheRowsAndStayInvisible) {
  SimpleKvCache cache(kGeometry);
  WriteAll(&cache, Range(0, 3), 1);
  const auto before = SnapshotOf(cache);
  const auto slot = cache.TryReserveSlot(1, {{3, 4}});
  ASSERT_TRUE(slot);
  std::ranges::fill(slot->keys, 7.0f);
  std::ranges::fill(slot->values, 8.0f);
  EXPECT_EQ(SnapshotOf(cache), before);
  cache.CommitSlot(1, {{3, 4}});
  KvView view;
  cache.View(1, &view);
  ASSERT_EQ(view.segments.size(), 1u);
  const auto row_bytes = static_cast<size_t>(RowBytes(RowType::kF32, kGeometry.kv_stride()));
  EXPECT_EQ(view.segments[0].keys + 3 * row_bytes, std::as_bytes(slot->keys).data());
  EXPECT_EQ(view.segments[0].values + 3 * row_bytes, std::as_bytes(slot->values).data());
  EXPECT_EQ(Read(cache, 1).keys.back(), 7.0f);
  EXPECT_EQ(Read(cache, 1).values.back(), 8.0f);
  EXPECT_EQ(cache.length(0), 3);  // of this layer alone [V1]
}

// R2, R6: a refusal changes nothing, not even the open reservation; a grant replaces it.
TEST(SimpleKvCacheTest, R2R6RefusalsLeaveTheReservationAndGrantsReplaceIt) {
  SimpleKvCache cache(kGeometry);
  ASSERT_TRUE(cache.TryReserveSlot(0, {{0, 1}}));
  for (const std::vector<int32_t>& refused :
       {std::vector<int32_t>{}, {0, 2}, {1, 0}, {-1, 0}, {7, 8}, {8}, {2, 2}}) {
    EXPECT_FALSE(cache.TryReserveSlot(0, refused));
  }
  ASSERT_TRUE(cache.TryReserveSlot(1, {{0}}));  // another layer
  cache.CommitSlot(0, {{0, 1}});
  EXPECT_EQ(cache.length(0), 2);

  ASSERT_TRUE(cache.TryReserveSlot(0, {{2}}));
  ASSERT_TRUE(cache.TryReserveSlot(0, {{2, 3}}));
  EXPECT_THROW(cache.CommitSlot(0, {{2}}), std::logic_error);
  cache.CommitSlot(0, {{2, 3}});
  EXPECT_EQ(cache.length(0), 4);
}

// U6, B2, B4: what cancels a reservation.
TEST(SimpleKvCacheTest, U6B2B4UpdateRollbackAndForkCancelReservations) {
  const std::vector<int32_t> next = {2};
  for (int what = 0; what < 4; ++what) {
    SimpleKvCache cache(kGeometry);
    WriteAll(&cache, Range(0, 2), 1);
    ASSERT_TRUE(cache.TryReserveSlot(0, next));
    std::unique_ptr<KvCache> fork;
    if (what == 0) Write(&cache, 0, {0}, 2);
    if (what == 1) cache.Rollback(2);
    if (what == 2) fork = cache.Fork();
    if (what == 3) {  // nothing cancels here: other layers, empty input [U3], a failed update [U1]
      Write(&cache, 1, {0}, 2);
      Write(&cache, 0, {}, 2);
      EXPECT_THROW(Write(&cache, 0, {8}, 2), std::out_of_range);
      EXPECT_NO_THROW(cache.CommitSlot(0, next));
      continue;
    }
    EXPECT_THROW(cache.CommitSlot(0, next), std::logic_error) << what;
    EXPECT_EQ(cache.length(0), 2);
  }
}

TEST(SimpleKvCacheTest, U2U5RowsLandInOrderAndTheLengthNeverShrinks) {
  SimpleKvCache cache(kGeometry);
  const std::vector<int32_t> positions = {5, 1, 5, 0};
  auto keys = Rows(kGeometry, 0, positions, 1, true);
  const auto values = Rows(kGeometry, 0, positions, 1, false);
  const auto stride = static_cast<size_t>(kGeometry.kv_stride());
  for (size_t i = 2 * stride; i < 3 * stride; ++i) keys[i] = 42.0f;  // the second row for 5
  cache.Update(0, positions, keys, values);
  EXPECT_EQ(Read(cache, 0).keys.back(), 42.0f);
  Write(&cache, 0, {2}, 2);
  EXPECT_EQ(cache.length(0), 6);
  EXPECT_EQ(Read(cache, 0).keys.back(), 42.0f);
}

TEST(SimpleKvCacheTest, B4ForksGoTheirOwnWays) {
  SimpleKvCache cache(kGeometry);
  WriteAll(&cache, Range(0, 4), 1);
  Write(&cache, 2, {6}, 1);
  const auto fork = cache.Fork();
  const auto before = SnapshotOf(cache);
  EXPECT_EQ(SnapshotOf(*fork), before);
  WriteAll(fork.get(), {3, 4}, 2);
  EXPECT_EQ(SnapshotOf(cache), before);
  const auto forked = SnapshotOf(*fork);
  cache.Rollback(0);
  WriteAll(&cache, {0}, 3);
  EXPECT_EQ(SnapshotOf(*fork), forked);
}

// Rows that a rollback rejects are poison afterwards, keys and values: a read of them shows.
TEST(SimpleKvCacheTest, RejectedRowsLeavePoisonBehind) {
  const MemoryWatch watch({.poison = 0x5a});
  SimpleKvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .max_length = 6});
  const std::vector<float> rows(4 * 8, 1.0f);  // no byte of 1.0 is the poison
  cache.Update(0, std::vector<int32_t>{0, 1, 2, 3}, rows, rows);
  ASSERT_EQ(watch.live().size(), 2u) << "keys and values";
  const auto rows_held = [&](size_t buffer) {
    const WatchedMemory& memory = watch.live()[buffer];
    const auto held = std::ranges::count_if(std::span(memory.data, memory.bytes),
                                            [](std::byte b) { return b != std::byte{0x5a}; });
    return held / static_cast<int64_t>(8 * sizeof(float));
  };
  for (const size_t buffer : {0u, 1u}) EXPECT_EQ(rows_held(buffer), 4) << "buffer " << buffer;
  cache.Rollback(1);
  for (const size_t buffer : {0u, 1u}) EXPECT_EQ(rows_held(buffer), 1) << "buffer " << buffer;
}

TEST(SimpleKvCacheTest, LayersAndWholeLinesOfRowsAreAligned) {
  const auto aligned = [](const KvCache& cache, int32_t layer, int64_t row) {
    KvView view;
    cache.View(layer, &view);
    const int64_t offset = row * RowBytes(RowType::kF32, cache.geometry().kv_stride());
    return reinterpret_cast<uintptr_t>(view.segments.at(0).keys + offset) % kCacheAlignment == 0 &&
           reinterpret_cast<uintptr_t>(view.segments.at(0).values + offset) % kCacheAlignment == 0;
  };
  SimpleKvCache odd(kGeometry), lines({3, 3, 16, 7});
  WriteAll(&odd, {0}, 1);
  WriteAll(&lines, {6}, 1);
  for (int32_t layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(aligned(odd, layer, 0)) << layer;
    for (int64_t row = 0; row < 7; ++row) EXPECT_TRUE(aligned(lines, layer, row)) << row;
  }
}

}  // namespace
}  // namespace lockstep
