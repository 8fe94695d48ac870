// Clauses B1 to B4 of caches/CONTRACT.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "caches/contract/fixture.h"
#include "caches/paged_kv_cache.h"

namespace lockstep::contract {
namespace {

class RollbackTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, RollbackTest, testing::ValuesIn(EveryCache()), TestName);

class RollbackSlotTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, RollbackSlotTest, testing::ValuesIn(SlotCaches()), TestName);

class RollbackBlockTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, RollbackBlockTest, testing::ValuesIn(BlockCaches()), TestName);

class ForkTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, ForkTest, testing::ValuesIn(EveryCache()), TestName);

class ForkSlotTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, ForkSlotTest, testing::ValuesIn(SlotCaches()), TestName);

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

TEST_P(RollbackTest, B1_RefusesALengthOutsideTheCurrentOne) {
  const auto cache = Make();
  EXPECT_THROW(cache->Rollback(1), std::out_of_range);
  EXPECT_NO_THROW(cache->Rollback(0));
  Update(cache.get(), 1, Range(0, 6), 1);
  const Snapshot before = Observe(*cache);
  for (int32_t length : {-1, 7, kMin, kMax, -6}) {
    EXPECT_THROW(cache->Rollback(length), std::out_of_range) << length;
    EXPECT_EQ(Observe(*cache), before) << length;
  }
}

TEST_P(RollbackSlotTest, B1_RefusalKeepsReservations) {
  const auto cache = Make();
  ASSERT_TRUE(cache->TryReserveSlot(1, Range(0, 1)));
  EXPECT_THROW(cache->Rollback(1), std::out_of_range);
  EXPECT_NO_THROW(cache->CommitSlot(1, Range(0, 1)));
}

TEST_P(RollbackTest, B1_OnlyLongerLayersShrink) {
  for (int32_t length = 0; length <= 12; ++length) {
    const auto cache = Make();
    Model model(kGeometry);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      const auto positions = Range(0, 4 * (layer + 1));  // 4, 8, 12 rows
      Update(cache.get(), layer, positions, 1);
      model.Write(layer, positions, 1);
    }
    cache->Rollback(length);
    model.Rollback(length);
    EXPECT_EQ(Difference(*cache, model), "") << length;
    EXPECT_EQ(cache->current_length(), length);
  }
}

TEST_P(RollbackSlotTest, B2_CancelsAllReservations) {
  for (bool clear : {false, true}) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 2), 1);
    const Snapshot before = Observe(*cache);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      ASSERT_TRUE(cache->TryReserveSlot(layer, Range(2, 3)));
    }
    if (clear) {
      cache->Clear();
    } else {
      cache->Rollback(2);
      EXPECT_EQ(Observe(*cache), before);
    }
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      EXPECT_THROW(cache->CommitSlot(layer, Range(2, 3)), std::logic_error);
    }
  }
}

// Writing the rest again after a rollback ends as if the first attempt had never been made.
TEST_P(RollbackTest, B2_RedoEqualsNeverHavingDoneIt) {
  for (int32_t keep = 0; keep <= 13; ++keep) {
    const auto redone = Make(), plain = Make();
    for (int32_t position = 0; position < 13; ++position) {
      UpdateAll(redone.get(), {position}, position < keep ? 1 : 2);
      if (position < keep) UpdateAll(plain.get(), {position}, 1);
    }
    redone->Rollback(keep);
    EXPECT_EQ(DigestOfCache(*redone), DigestOfCache(*plain)) << keep;
    for (int32_t position = keep; position < 15; ++position) {
      UpdateAll(redone.get(), {position}, 3);
      UpdateAll(plain.get(), {position}, 3);
      EXPECT_EQ(DigestOfCache(*redone), DigestOfCache(*plain)) << keep << " then " << position;
    }
  }
}

TEST_P(RollbackTest, B2_ClearedEqualsFresh) {
  const auto used = Make(), fresh = Make();
  UpdateAll(used.get(), Range(0, 21), 1);
  used->Clear();
  EXPECT_EQ(used->current_length(), 0);
  for (int step = 0; step < 3; ++step) {
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      Update(used.get(), layer, {5 * step + 2}, 2);  // gaps over the old rows
      Update(fresh.get(), layer, {5 * step + 2}, 2);
    }
    Snapshot a = Observe(*used), b = Observe(*fresh);
    ASSERT_EQ(a.blocks.has_value(), b.blocks.has_value());
    if (a.blocks) {
      EXPECT_EQ(a.blocks->free_blocks, b.blocks->free_blocks);
    }
    a.blocks = b.blocks;  // which blocks they are may differ
    EXPECT_EQ(a, b);
  }
}

TEST_P(RollbackBlockTest, B2_ClearReturnsAllBlocks) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 21), 1);
  ASSERT_TRUE(cache->TryReserveSlot(1, Range(20, 21)));
  cache->Clear();
  EXPECT_EQ(BlockCountsOf(*cache)->used_blocks, 0);
}

// The distinct blocks that hold a row below the length of any of the sequences.
int32_t BlocksHolding(const std::vector<const KvCache*>& sequences) {
  std::set<int32_t> blocks;
  for (const KvCache* cache : sequences) {
    const auto table = dynamic_cast<const PagedKvCache&>(*cache).block_table();
    const int32_t count = BlocksForRows(cache->current_length(),
                                        dynamic_cast<const PagedKvCache&>(*cache).block_size());
    for (int32_t i = 0; i < count; ++i) blocks.insert(table[static_cast<size_t>(i)]);
  }
  return static_cast<int32_t>(blocks.size());
}

TEST_P(RollbackBlockTest, B3_UsedBlocksAreThoseThatHoldRows) {
  const int32_t block = GetParam().block_size;
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 21), 1);
  for (int32_t length = 21; length >= 0; --length) {
    cache->Rollback(length);
    EXPECT_EQ(BlockCountsOf(*cache)->used_blocks, BlocksForRows(length, block)) << length;
  }
  Update(cache.get(), 1, {20}, 1);  // a gap is rows too
  EXPECT_EQ(BlockCountsOf(*cache)->used_blocks, BlocksForRows(21, block));
}

TEST_P(RollbackBlockTest, B3_SharedBlocksAreUsedOnce) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 18), 1);
  const auto fork = cache->Fork();
  const auto expect_balance = [&] {
    EXPECT_EQ(BlockCountsOf(*cache)->used_blocks, BlocksHolding({cache.get(), fork.get()}));
  };
  expect_balance();
  Update(fork.get(), 1, {3, 17}, 2);
  expect_balance();
  cache->Rollback(9);
  expect_balance();
  fork->Rollback(5);
  expect_balance();
  Update(cache.get(), 0, {12}, 3);
  expect_balance();
  fork->Clear();
  expect_balance();
}

TEST_P(ForkTest, B4_ForkHasTheSameRows) {
  const auto cache = Make();
  EXPECT_EQ(DigestOfCache(*cache->Fork()), DigestOfCache(*cache));  // also when empty
  Update(cache.get(), 0, Range(0, 9), 1);
  Update(cache.get(), 1, {3}, 1);
  const Snapshot before = Observe(*cache);
  const auto fork = cache->Fork();
  EXPECT_EQ(fork->name(), cache->name());
  EXPECT_EQ(fork->geometry(), cache->geometry());
  const Snapshot source = Observe(*cache), copy = Observe(*fork);
  EXPECT_EQ(source.hash, before.hash);
  EXPECT_EQ(copy.lengths, before.lengths);
  EXPECT_EQ(copy.row_bits, before.row_bits);
  EXPECT_EQ(copy.query_digests, before.query_digests);
  EXPECT_EQ(copy.storage, before.storage);
}

TEST_P(ForkTest, B4_WritesNeverShowInTheOther) {
  for (int32_t at : {0, 3, 8, 9, 15, 20}) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 9), 1);
    const auto fork = cache->Fork();
    Model source(kGeometry), forked(kGeometry);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      source.Write(layer, Range(0, 9), 1);
      forked.Write(layer, Range(0, 9), 1);
    }
    Update(fork.get(), 1, {at}, 2);
    forked.Write(1, Range(at, at + 1), 2);
    EXPECT_EQ(Difference(*cache, source), "") << at;
    Update(cache.get(), 1, {at}, 3);
    source.Write(1, Range(at, at + 1), 3);
    EXPECT_NE(Difference(*cache, forked), "") << at << ": both wrote the same";
    EXPECT_EQ(Difference(*cache, source), "") << at;
    EXPECT_EQ(Difference(*fork, forked), "") << at;
    cache->Rollback(2);
    EXPECT_EQ(Difference(*fork, forked), "") << at;
    source.Rollback(2);
    fork->Clear();
    EXPECT_EQ(Difference(*cache, source), "") << at;
  }
}

TEST_P(ForkTest, B4_ForkOutlivesItsSource) {
  auto cache = Make();
  UpdateAll(cache.get(), Range(0, 9), 1);
  auto fork = cache->Fork();
  const auto grandchild = fork->Fork();
  cache.reset();
  fork.reset();
  Update(grandchild.get(), 0, {9}, 2);
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) model.Write(layer, Range(0, 9), 1);
  model.Write(0, Range(9, 10), 2);
  EXPECT_EQ(Difference(*grandchild, model), "");
}

TEST_P(ForkSlotTest, B4_CancelsTheSourcesReservations) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 2), 1);
  const Snapshot before = Observe(*cache);
  ASSERT_TRUE(cache->TryReserveSlot(1, Range(2, 3)));
  {
    const auto fork = cache->Fork();
    EXPECT_THROW(fork->CommitSlot(1, Range(2, 3)), std::logic_error);
  }
  EXPECT_THROW(cache->CommitSlot(1, Range(2, 3)), std::logic_error);
  EXPECT_EQ(Observe(*cache), before);
}

}  // namespace
}  // namespace lockstep::contract
