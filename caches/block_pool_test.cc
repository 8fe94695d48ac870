#include "caches/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

constexpr KvGeometry kShape = {.num_layers = 2, .num_kv_heads = 3, .head_dim = 5, .max_length = 1};

std::unique_ptr<BlockPool> MakePool(int32_t blocks, std::optional<uint64_t> seed = std::nullopt) {
  return std::make_unique<BlockPool>(BlockPoolOptions{.geometry = kShape,
                                                      .block_size = 4,
                                                      .num_blocks = blocks,
                                                      .shuffle_seed = seed,
                                                      .poison_on_free = true});
}

TEST(BlockPoolTest, TakesEveryBlockOnceAndTheLastReleasedFirst) {
  const auto pool = MakePool(3);
  EXPECT_EQ(pool->Take(), 0);
  EXPECT_EQ(pool->Take(), 1);
  EXPECT_EQ(pool->Take(), 2);
  EXPECT_EQ(pool->free_blocks(), 0);
  EXPECT_EQ(pool->used_blocks(), 3);
  pool->Release(1);
  pool->Release(0);
  EXPECT_EQ(pool->free_blocks(), 2);
  EXPECT_EQ(pool->Take(), 0);
  EXPECT_EQ(pool->Take(), 1);
  EXPECT_THAT(pool->Audit(), testing::IsEmpty());
}

TEST(BlockPoolTest, ShuffledOrderIsAPermutationAndRepeatable) {
  std::vector<std::vector<int32_t>> orders;  // by pool
  for (uint64_t seed : {7u, 7u, 8u}) {
    const auto pool = MakePool(16, seed);
    auto& order = orders.emplace_back();
    for (int i = 0; i < 16; ++i) order.push_back(pool->Take());
    for (int32_t block = 0; block < 16; ++block) pool->Release(block);
    for (int i = 0; i < 16; ++i) order.push_back(pool->Take());
    EXPECT_THAT(pool->Audit(), testing::IsEmpty());
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
  for (auto half : {0, 16}) {
    std::vector<int32_t> sorted(orders[0].begin() + half, orders[0].begin() + half + 16);
    EXPECT_FALSE(std::ranges::is_sorted(sorted));
    std::ranges::sort(sorted);
    for (int32_t i = 0; i < 16; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  }
}

TEST(BlockPoolTest, EveryOrderIsReachedByASeed) {
  std::set<std::vector<int32_t>> orders;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto pool = MakePool(3, seed);
    orders.insert({pool->Take(), pool->Take(), pool->Take()});
    // Six numbers fill their allocation, so an index past the end would read something else.
    const auto full = MakePool(6, seed);
    std::set<int32_t> taken;
    for (int i = 0; i < 6; ++i) taken.insert(full->Take());
    EXPECT_EQ(*taken.rbegin(), 5);
    EXPECT_EQ(taken.size(), 6u);
    EXPECT_THAT(full->Audit(), testing::IsEmpty()) << seed;
  }
  EXPECT_EQ(orders.size(), 6u);
}

TEST(BlockPoolTest, BlockIsFreeOnlyAfterItsLastHolder) {
  const auto pool = MakePool(2);
  const int32_t block = pool->Take();
  pool->Share(block);
  pool->Share(block);
  EXPECT_EQ(pool->references(block), 3);
  pool->Release(block);
  pool->Release(block);
  EXPECT_EQ(pool->free_blocks(), 1);
  EXPECT_EQ(pool->references(block), 1);
  pool->Release(block);
  EXPECT_EQ(pool->free_blocks(), 2);
  EXPECT_EQ(pool->references(block), 0);
}

TEST(BlockPoolTest, RowZeroOfEveryPlaneIsAlignedAndPlanesDoNotOverlap) {
  const auto pool = MakePool(3);
  std::vector<const float*> planes;
  for (int32_t block = 0; block < 3; ++block) {
    ASSERT_EQ(pool->Take(), block);
    for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
      planes.push_back(pool->keys(block, layer));
      planes.push_back(pool->values(block, layer));
    }
  }
  std::ranges::sort(planes);
  for (size_t i = 0; i < planes.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uintptr_t>(planes[i]) % kCacheAlignment, 0u);
    if (i == 0) continue;
    EXPECT_GE(planes[i] - planes[i - 1], 4 * kShape.kv_stride());
  }
}

TEST(BlockPoolTest, CopyTakesKeysAndValuesOfEveryLayer) {
  const auto pool = MakePool(2);
  const int32_t from = pool->Take(), to = pool->Take();
  const auto rows = static_cast<size_t>(4 * kShape.kv_stride());
  for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
    const auto tag = static_cast<float>(layer);
    std::fill_n(pool->mutable_keys(from, layer), rows, 1.0f + tag);
    std::fill_n(pool->mutable_values(from, layer), rows, -1.0f - tag);
  }
  pool->Share(from);  // copying a shared block is what Copy is for
  pool->Copy(from, to);
  for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
    const auto tag = static_cast<float>(layer);
    for (size_t i = 0; i < rows; ++i) {
      ASSERT_EQ(pool->keys(to, layer)[i], 1.0f + tag);
      ASSERT_EQ(pool->values(to, layer)[i], -1.0f - tag);
    }
  }
}

TEST(BlockPoolTest, FreedMemoryReadsAsPoison) {
  const auto pool = MakePool(1);
  int32_t block = pool->Take();
  const auto rows = static_cast<size_t>(4 * kShape.kv_stride());
  for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
    std::fill_n(pool->mutable_keys(block, layer), rows, 3.0f);
    std::fill_n(pool->mutable_values(block, layer), rows, 4.0f);
  }
  pool->Release(block);
  block = pool->Take();
  for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
    for (size_t i = 0; i < rows; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(pool->keys(block, layer)[i]), 0xffffffffu);
      ASSERT_EQ(std::bit_cast<uint32_t>(pool->values(block, layer)[i]), 0xffffffffu);
    }
  }
}

// The offsets of a pool too large to allocate here: 2065 blocks of 1039680 elements still fit
// 31 bits, 2066 do not.
TEST(BlockPoolTest, U7_OffsetsAre64Bit) {
  const KvGeometry wide = {.num_layers = 1, .num_kv_heads = 19, .head_dim = 1710, .max_length = 16};
  const BlockLayout layout(wide, 16);
  ASSERT_EQ(layout.block_elements, 1039680);
  EXPECT_EQ(layout.keys_offset(2065, 0), int64_t{2146939200});
  EXPECT_EQ(layout.keys_offset(2066, 0), int64_t{2147978880});
  EXPECT_EQ(layout.values_offset(2066, 0), int64_t{2147978880 + 519840});
  const int32_t last = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(layout.keys_offset(last, 0), int64_t{last} * 1039680);
}

TEST(BlockPoolTest, RefusesBadShapes) {
  const auto make = [](KvGeometry geometry, int32_t block_size, int32_t blocks) {
    BlockPool pool(
        {.geometry = geometry, .block_size = block_size, .num_blocks = blocks, .shuffle_seed = {}});
  };
  KvGeometry no_heads = kShape;
  no_heads.num_kv_heads = 0;
  const int32_t huge = std::numeric_limits<int32_t>::max();
  const KvGeometry too_wide = {
      .num_layers = huge, .num_kv_heads = huge, .head_dim = 1, .max_length = 1};
  const KvGeometry wide = {.num_layers = 1, .num_kv_heads = huge, .head_dim = 1, .max_length = 1};
  EXPECT_THROW(make(no_heads, 4, 1), std::invalid_argument);
  EXPECT_THROW(make(kShape, 0, 1), std::invalid_argument);
  EXPECT_THROW(make(kShape, -1, 1), std::invalid_argument);
  EXPECT_THROW(make(kShape, 4, 0), std::invalid_argument);
  EXPECT_THROW(make(kShape, 4, -1), std::invalid_argument);
  EXPECT_THROW(make(too_wide, 2, 1), std::invalid_argument);
  EXPECT_THROW(make(wide, huge / 8, 64), std::invalid_argument);
  // In words of the one who chose it, not of the shape that a block has.
  EXPECT_THAT([&] { make(kShape, 0, 1); },
              testing::ThrowsMessage<std::invalid_argument>("block size 0 must be positive"));
}

TEST(BlockPoolDeathTest, StopsAtWrongUseOfABlock) {
  const auto pool = MakePool(1);
  EXPECT_DEATH(pool->Release(0), "block 0 is free");
  EXPECT_DEATH(pool->Share(0), "block 0 is free");
  EXPECT_DEATH(pool->keys(0, 0), "block 0 is free");
  EXPECT_DEATH(pool->Share(1), "block 1 of 1");
  EXPECT_DEATH(pool->Share(-1), "block -1 of 1");
  pool->Take();
  EXPECT_DEATH(pool->Take(), "no free block");
  pool->Share(0);
  EXPECT_DEATH(pool->mutable_keys(0, 0), "block 0 has 2 references");
  EXPECT_DEATH(pool->mutable_values(0, 0), "block 0 has 2 references");

  const auto two = MakePool(2);
  const int32_t taken = two->Take();
  EXPECT_DEATH(two->Copy(1 - taken, taken), "is free");
  EXPECT_DEATH(two->Copy(taken, 1 - taken), "has 0 references");
}

TEST(AuditBooksTest, SeesEveryWayNotToBalance) {
  const auto faults = [](std::vector<int32_t> references, std::vector<int32_t> free) {
    return AuditBooks(references, free);
  };
  using testing::ElementsAre;
  EXPECT_THAT(faults({0, 2, 1, 0}, {3, 0}), testing::IsEmpty());
  EXPECT_THAT(faults({1, 1}, {2}), ElementsAre("free list holds block 2 of 2"));
  EXPECT_THAT(faults({1, 1}, {-1}), ElementsAre("free list holds block -1 of 2"));
  EXPECT_THAT(faults({1, -1}, {}), ElementsAre("block 1 has -1 references"));
  EXPECT_THAT(faults({0, 1}, {}),
              ElementsAre("block 0 has 0 references and is 0 times in the free list"));
  EXPECT_THAT(faults({0, 1}, {0, 0}),
              ElementsAre("block 0 has 0 references and is 2 times in the free list"));
  EXPECT_THAT(faults({0, 3}, {1, 0}),
              ElementsAre("block 1 has 3 references and is 1 times in the free list"));
}

}  // namespace
}  // namespace lockstep
