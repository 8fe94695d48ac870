#include "caches/paged_kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "caches/contract/fixture.h"

namespace lockstep {
namespace {

using contract::Difference;
using contract::Fill;
using contract::kGeometry;
using contract::Model;
using contract::Observe;
using contract::Range;
using contract::Snapshot;
using contract::Update;
using contract::UpdateAll;
using contract::WriteDirect;
using testing::ElementsAre;
using testing::IsEmpty;

// A pool of blocks of 4 positions and sequences on it, with the model of each.
class PagedTest : public testing::Test {
 protected:
  void MakePool(int32_t blocks) {
    pool_ = std::make_shared<BlockPool>(BlockPoolOptions{.geometry = kGeometry,
                                                         .block_size = 4,
                                                         .num_blocks = blocks,
                                                         .shuffle_seed = 1,
                                                         .poison_on_free = true});
    cache_ = std::make_unique<PagedKvCache>(
        PagedKvCacheOptions{.geometry = kGeometry, .block_size = 4, .pool = pool_});
  }

  std::unique_ptr<PagedKvCache> ForkPaged() {
    return std::unique_ptr<PagedKvCache>(static_cast<PagedKvCache*>(cache_->Fork().release()));
  }

  std::vector<std::string> Audit(const PagedKvCache* fork = nullptr) const {
    std::vector<const PagedKvCache*> sequences = {cache_.get()};
    if (fork != nullptr) sequences.push_back(fork);
    return AuditBlocks(*pool_, sequences);
  }

  std::shared_ptr<BlockPool> pool_;
  std::unique_ptr<PagedKvCache> cache_;
};

TEST_F(PagedTest, ViewIsOneSegmentForEachBlockOfTheTable) {
  MakePool(6);
  Update(cache_.get(), 1, Range(0, 10), 1);
  KvView view;
  cache_->View(1, &view);
  ASSERT_EQ(view.segments.size(), 3u);
  const std::array<int32_t, 3> counts = {4, 4, 2};
  for (size_t i = 0; i < 3; ++i) {
    const KvSegment& s = view.segments[i];
    const int32_t block = cache_->block_table()[i];
    EXPECT_EQ(s.first, static_cast<int32_t>(4 * i));
    EXPECT_EQ(s.count, counts[i]);
    EXPECT_EQ(s.keys, reinterpret_cast<const std::byte*>(pool_->keys(block, 1)));
    EXPECT_EQ(s.values, reinterpret_cast<const std::byte*>(pool_->values(block, 1)));
  }
  cache_->View(0, &view);
  EXPECT_EQ(view.length, 0);
  EXPECT_THAT(view.segments, IsEmpty());
}

TEST_F(PagedTest, GatheredRowsEqualTheView) {
  MakePool(6);
  UpdateAll(cache_.get(), Range(0, 10), 1);
  const KvRows rows = contract::Read(*cache_, 2);
  std::vector<float> keys(rows.keys.size()), values(rows.values.size());
  cache_->GatherRows(2, keys, values);
  EXPECT_EQ(keys, rows.keys);
  EXPECT_EQ(values, rows.values);
  EXPECT_THROW(cache_->GatherRows(2, std::span(keys).first(keys.size() - 1), values),
               std::invalid_argument);
  EXPECT_THROW(cache_->GatherRows(2, keys, {}), std::invalid_argument);
  EXPECT_THROW(cache_->GatherRows(3, keys, values), std::out_of_range);
}

TEST_F(PagedTest, OwnPoolHasJustEnoughBlocks) {
  for (int32_t block_size : {1, 2, 4, 16, 21, 22}) {
    PagedKvCache cache({.geometry = kGeometry, .block_size = block_size, .pool = nullptr});
    EXPECT_EQ(cache.pool().num_blocks(), (21 + block_size - 1) / block_size);
    UpdateAll(&cache, Range(0, 21), 1);
    EXPECT_EQ(cache.pool().free_blocks(), 0);
    Model model(kGeometry);
    for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 21), 1);
    EXPECT_EQ(Difference(cache, model), "");
  }
}

TEST_F(PagedTest, RefusesAPoolOfAnotherShape) {
  MakePool(6);
  const auto make = [&](KvGeometry geometry, int32_t block_size) {
    PagedKvCache cache({.geometry = geometry, .block_size = block_size, .pool = pool_});
  };
  KvGeometry layers = kGeometry, heads = kGeometry, dim = kGeometry, longer = kGeometry;
  layers.num_layers = 2;
  heads.num_kv_heads = 1;
  dim.head_dim = 33;
  longer.max_length = 1000;
  EXPECT_THROW(make(layers, 4), std::invalid_argument);
  EXPECT_THROW(make(heads, 4), std::invalid_argument);
  EXPECT_THROW(make(dim, 4), std::invalid_argument);
  EXPECT_THROW(make(kGeometry, 2), std::invalid_argument);
  EXPECT_THROW(make(kGeometry, 0), std::invalid_argument);
  EXPECT_NO_THROW(make(longer, 4));  // the limit belongs to the sequence
}

TEST_F(PagedTest, DestructionReturnsAllBlocksAlsoOfOpenReservations) {
  MakePool(6);
  UpdateAll(cache_.get(), Range(0, 6), 1);
  {
    const auto fork = ForkPaged();
    ASSERT_TRUE(fork->TryReserveSlot(1, Range(5, 6)));  // copies
    ASSERT_TRUE(fork->TryReserveSlot(2, Range(8, 9)));  // a new block
    EXPECT_EQ(pool_->free_blocks(), 2);
    EXPECT_THAT(Audit(fork.get()), IsEmpty());
  }
  EXPECT_EQ(pool_->free_blocks(), 4);
  EXPECT_THAT(Audit(), IsEmpty());
}

// ---- Copy-on-write -----------------------------------------------------------------------

TEST_F(PagedTest, B4_ForkTakesNoBlockAndAWriteCopiesOnlyItsOwn) {
  MakePool(6);
  UpdateAll(cache_.get(), Range(0, 10), 1);
  const Snapshot before = Observe(*cache_);
  const auto fork = ForkPaged();
  EXPECT_EQ(pool_->free_blocks(), 3);
  EXPECT_THAT(fork->block_table(), testing::ElementsAreArray(cache_->block_table()));
  EXPECT_EQ(Observe(*fork).hash, before.hash);

  Update(fork.get(), 1, {5}, 2);
  EXPECT_EQ(pool_->free_blocks(), 2);
  EXPECT_EQ(fork->block_table()[0], cache_->block_table()[0]);
  EXPECT_NE(fork->block_table()[1], cache_->block_table()[1]);
  EXPECT_EQ(fork->block_table()[2], cache_->block_table()[2]);
  EXPECT_EQ(Observe(*cache_).hash, before.hash);

  // The copy has K and V of the other layers too.
  Model model(kGeometry);
  for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 10), 1);
  model.Write(1, Range(5, 6), 2);
  EXPECT_EQ(Difference(*fork, model), "");
  EXPECT_THAT(Audit(fork.get()), IsEmpty());
}

TEST_F(PagedTest, V2_GapRowsInASharedBlockAreWrittenToACopy) {
  for (bool direct : {false, true}) {
    MakePool(6);
    UpdateAll(cache_.get(), Range(0, 6), 1);
    const auto fork = ForkPaged();
    UpdateAll(cache_.get(), Range(6, 8), 3);  // the source goes on in the shared tail
    Model source(kGeometry), forked(kGeometry);
    for (int32_t layer = 0; layer < 3; ++layer) {
      source.Write(layer, Range(0, 6), 1);
      source.Write(layer, Range(6, 8), 3);
      forked.Write(layer, Range(0, 6), 1);
    }
    if (direct) {
      ASSERT_TRUE(WriteDirect(fork.get(), 0, {9}, 2));
    } else {
      Update(fork.get(), 0, {9}, 2);
    }
    forked.Write(0, Range(9, 10), 2);
    EXPECT_EQ(Difference(*cache_, source), "");
    EXPECT_EQ(Difference(*fork, forked), "");
    EXPECT_THAT(Audit(fork.get()), IsEmpty());
  }
}

TEST_F(PagedTest, R7_SharedBlockIsCopiedBeforeTheSpansAreHandedOut) {
  MakePool(6);
  UpdateAll(cache_.get(), Range(0, 6), 1);
  const auto fork = ForkPaged();
  const Snapshot before = Observe(*cache_), fork_before = Observe(*fork);
  const auto slot = fork->TryReserveSlot(1, Range(6, 8));
  ASSERT_TRUE(slot);
  std::ranges::fill(slot->keys, 9.0f);
  std::ranges::fill(slot->values, 9.0f);
  EXPECT_NE(fork->block_table()[1], cache_->block_table()[1]);
  EXPECT_EQ(Observe(*cache_).hash, before.hash);
  EXPECT_EQ(Observe(*fork).hash, fork_before.hash);
  EXPECT_THAT(Audit(fork.get()), IsEmpty());
  fork->CommitSlot(1, Range(6, 8));
  EXPECT_EQ(Observe(*cache_).hash, before.hash);
  EXPECT_EQ(fork->length(1), 8);
  EXPECT_EQ(pool_->free_blocks(), 3);
  EXPECT_THAT(Audit(fork.get()), IsEmpty());
}

TEST_F(PagedTest, R7_SourceWritesDuringTheForksReservation) {
  MakePool(6);
  UpdateAll(cache_.get(), Range(0, 6), 1);
  const auto fork = ForkPaged();
  const auto slot = fork->TryReserveSlot(0, Range(6, 7));
  ASSERT_TRUE(slot);
  Update(cache_.get(), 0, {5}, 2);  // the fork may still come back to the shared block
  EXPECT_THAT(Audit(fork.get()), IsEmpty());
  fork->Rollback(fork->current_length());
  Model model(kGeometry);
  for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 6), 1);
  EXPECT_EQ(Difference(*fork, model), "");
  EXPECT_EQ(pool_->used_blocks(), 3);
  EXPECT_THAT(Audit(fork.get()), IsEmpty());
}

TEST_F(PagedTest, RollbackInASharedBlockLeavesTheOtherSequenceAlone) {
  MakePool(6);
  UpdateAll(cache_.get(), Range(0, 7), 1);
  const auto fork = ForkPaged();
  const Snapshot before = Observe(*cache_);
  fork->Rollback(5);
  EXPECT_EQ(Observe(*cache_), before);
  Update(fork.get(), 2, {6}, 2);  // row 5 is a gap now
  Model model(kGeometry);
  for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 5), 1);
  model.Write(2, Range(6, 7), 2);
  EXPECT_EQ(Difference(*fork, model), "");
  EXPECT_EQ(Observe(*cache_).hash, before.hash);
  EXPECT_THAT(Audit(fork.get()), IsEmpty());
}

}  // namespace
}  // namespace lockstep
