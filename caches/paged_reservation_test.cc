// What open, replaced, refused and abandoned reservations do to the pool of a paged cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "caches/contract/fixture.h"
#include "caches/paged_kv_cache.h"

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
using testing::IsEmpty;

std::unique_ptr<PagedKvCache> Make(int32_t blocks) {
  auto pool = std::make_shared<BlockPool>(BlockPoolOptions{.geometry = kGeometry,
                                                           .block_size = 4,
                                                           .num_blocks = blocks,
                                                           .shuffle_seed = 1,
                                                           .poison_on_free = true});
  return std::make_unique<PagedKvCache>(
      PagedKvCacheOptions{.geometry = kGeometry, .block_size = 4, .pool = pool});
}

std::unique_ptr<PagedKvCache> ForkOf(PagedKvCache* cache) {
  return std::unique_ptr<PagedKvCache>(static_cast<PagedKvCache*>(cache->Fork().release()));
}

std::vector<std::string> Audit(const PagedKvCache& cache, const PagedKvCache* fork = nullptr) {
  std::vector<const PagedKvCache*> sequences = {&cache};
  if (fork != nullptr) sequences.push_back(fork);
  return AuditBlocks(cache.pool(), sequences);
}

// Every way to abandon the reservation of layer 1.
struct Abandon {
  std::string name;
  std::function<void(PagedKvCache*)> act;
};
std::vector<Abandon> WaysToAbandon() {
  return {
      {"rollback", [](PagedKvCache* c) { c->Rollback(c->current_length()); }},
      {"fork", [](PagedKvCache* c) { c->Fork(); }},
      {"replaced", [](PagedKvCache* c) { EXPECT_TRUE(c->TryReserveSlot(1, Range(0, 1))); }},
      {"update", [](PagedKvCache* c) { Update(c, 1, {0}, 1); }},
  };
}

TEST(PagedReservationTest, B2_AbandonedReservationReturnsItsNewBlocks) {
  for (const Abandon& way : WaysToAbandon()) {
    SCOPED_TRACE(way.name);
    const auto cache = Make(6);
    UpdateAll(cache.get(), Range(0, 4), 1);
    const Snapshot before = Observe(*cache);
    ASSERT_TRUE(cache->TryReserveSlot(1, Range(13, 15)));  // blocks 1 and 2 for the gap, 3 itself
    EXPECT_EQ(cache->pool().free_blocks(), 2);
    EXPECT_THAT(Audit(*cache), IsEmpty());
    way.act(cache.get());
    EXPECT_EQ(Observe(*cache), before);
    EXPECT_THAT(Audit(*cache), IsEmpty());
  }
}

TEST(PagedReservationTest, B2_AbandonedReservationGoesBackToTheSharedBlock) {
  for (const Abandon& way : WaysToAbandon()) {
    if (way.name == "update" || way.name == "replaced") continue;  // they write or copy block 0
    SCOPED_TRACE(way.name);
    const auto cache = Make(6);
    UpdateAll(cache.get(), Range(0, 6), 1);
    const auto fork = ForkOf(cache.get());
    const Snapshot before = Observe(*fork);
    const auto slot = fork->TryReserveSlot(1, Range(4, 7));  // overwrites 4 and 5, appends 6
    ASSERT_TRUE(slot);
    Fill(*fork, *slot, 1, Range(4, 7), 2);
    EXPECT_EQ(cache->pool().free_blocks(), 3);
    EXPECT_THAT(fork->retained_blocks(), testing::ElementsAre(cache->block_table()[1]));
    EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
    way.act(fork.get());
    EXPECT_EQ(Observe(*fork), before);
    EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
  }
}

TEST(PagedReservationTest, B2_ClearDropsReservationsAndAllBlocks) {
  const auto cache = Make(6);
  UpdateAll(cache.get(), Range(0, 6), 1);
  const auto fork = ForkOf(cache.get());
  ASSERT_TRUE(fork->TryReserveSlot(0, Range(5, 8)));
  ASSERT_TRUE(fork->TryReserveSlot(1, Range(12, 14)));
  fork->Clear();
  EXPECT_EQ(cache->pool().used_blocks(), 2);
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
  cache->Clear();
  EXPECT_EQ(cache->pool().free_blocks(), 6);
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
}

TEST(PagedReservationTest, R6_BlockStaysWhileAnotherLayerReservesInIt) {
  const auto cache = Make(6);
  UpdateAll(cache.get(), Range(0, 6), 1);
  const auto fork = ForkOf(cache.get());
  ASSERT_TRUE(fork->TryReserveSlot(0, Range(6, 8)));
  const int32_t copy = fork->block_table()[1];
  ASSERT_TRUE(fork->TryReserveSlot(2, Range(6, 8)));
  EXPECT_EQ(fork->block_table()[1], copy);
  ASSERT_TRUE(fork->TryReserveSlot(0, Range(8, 9)));  // layer 0 leaves the block
  EXPECT_EQ(fork->block_table()[1], copy);
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
  const auto slot = fork->TryReserveSlot(2, Range(6, 8));
  ASSERT_TRUE(slot);
  Fill(*fork, *slot, 2, Range(6, 8), 2);
  fork->CommitSlot(2, Range(6, 8));
  fork->Rollback(8);
  Model model(kGeometry);
  for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 6), 1);
  model.Write(2, Range(6, 8), 2);
  EXPECT_EQ(Difference(*fork, model), "");
  EXPECT_THAT(fork->retained_blocks(), IsEmpty());
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
}

// Whichever of two layers gives up first, the other one's blocks stay.
TEST(PagedReservationTest, R6_ClosingOneReservationKeepsTheBlocksOfAnother) {
  for (const int32_t closes : {0, 2}) {
    const int32_t stays = 2 - closes;
    const auto cache = Make(6);
    UpdateAll(cache.get(), Range(0, 4), 1);
    const auto slot = cache->TryReserveSlot(stays, Range(12, 14));
    ASSERT_TRUE(slot);
    ASSERT_TRUE(cache->TryReserveSlot(closes, Range(4, 6)));
    Fill(*cache, *slot, stays, Range(12, 14), 2);
    Update(cache.get(), closes, {0}, 3);  // cancels the reservation of its layer alone [U6]
    EXPECT_EQ(cache->block_table().size(), 4u);
    EXPECT_THAT(Audit(*cache), IsEmpty());
    cache->CommitSlot(stays, Range(12, 14));
    Model model(kGeometry);
    for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 4), 1);
    model.Write(closes, Range(0, 1), 3);
    model.Write(stays, Range(12, 14), 2);
    EXPECT_EQ(Difference(*cache, model), "");
  }
}

TEST(PagedReservationTest, CopyStaysWhenAnotherLayerPublishedInIt) {
  const auto cache = Make(6);
  UpdateAll(cache.get(), Range(0, 6), 1);
  const auto fork = ForkOf(cache.get());
  ASSERT_TRUE(fork->TryReserveSlot(0, Range(6, 8)));
  Update(fork.get(), 1, {6}, 2);
  fork->Rollback(7);  // abandons layer 0 only: layer 1 has a row in the copy
  Model model(kGeometry);
  for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 6), 1);
  model.Write(1, Range(6, 7), 2);
  EXPECT_EQ(Difference(*fork, model), "");
  EXPECT_NE(fork->block_table()[1], cache->block_table()[1]);
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
}

// An audit that is told of other holders than there are has to say so.
TEST(BlockHeldTwiceTest, FindsABlockWhereverItStandsAgain) {
  EXPECT_EQ(BlockHeldTwice({}), std::nullopt);
  EXPECT_EQ(BlockHeldTwice(std::vector<int32_t>{2, 0, 1}), std::nullopt);
  EXPECT_EQ(BlockHeldTwice(std::vector<int32_t>{1, 1}), 1);
  EXPECT_EQ(BlockHeldTwice(std::vector<int32_t>{2, 0, 1, 2}), 2);
}

TEST(AuditBlocksTest, SeesHoldersThatAreNotNamedAndNamedOnesThatAreNot) {
  const auto cache = Make(6);
  UpdateAll(cache.get(), Range(0, 6), 1);
  const auto fork = ForkOf(cache.get());
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
  EXPECT_THAT(Audit(*cache), testing::SizeIs(2)) << "both blocks have a holder more";
  const std::vector<const PagedKvCache*> twice = {cache.get(), fork.get(), fork.get()};
  EXPECT_THAT(AuditBlocks(cache->pool(), twice), testing::SizeIs(2));
  EXPECT_THAT(AuditBlocks(cache->pool(), {}), testing::SizeIs(2));
}

// ---- A pool that is too small --------------------------------------------------------------

TEST(PagedReservationTest, R2_RefusesWhenNoBlockIsFree) {
  const auto cache = Make(1);
  UpdateAll(cache.get(), Range(0, 3), 1);
  const Snapshot before = Observe(*cache);
  EXPECT_TRUE(cache->TryReserveSlot(0, Range(3, 4)));   // fits into the block it has
  EXPECT_FALSE(cache->TryReserveSlot(1, Range(4, 5)));  // starts a block
  EXPECT_FALSE(cache->TryReserveSlot(1, Range(8, 9)));
  EXPECT_EQ(Observe(*cache), before);
  cache->CommitSlot(0, Range(3, 4));  // the refusals left it open
  EXPECT_EQ(cache->length(0), 4);
  EXPECT_THAT(Audit(*cache), IsEmpty());
}

TEST(PagedReservationTest, R2_RefusesWhenTheCopyOrTheGapFindsNoBlock) {
  const auto cache = Make(3);
  UpdateAll(cache.get(), Range(0, 6), 1);
  const auto fork = ForkOf(cache.get());
  const Snapshot before = Observe(*fork);
  EXPECT_FALSE(fork->TryReserveSlot(0, Range(8, 9)));  // rows 6, 7 in a copy, and a new block
  EXPECT_EQ(Observe(*fork), before);
  EXPECT_TRUE(fork->TryReserveSlot(0, Range(6, 7)));
  EXPECT_FALSE(fork->TryReserveSlot(1, Range(0, 1)));  // the last free block is that copy
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
  fork->CommitSlot(0, Range(6, 7));
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
}

TEST(PagedReservationTest, R6_ReplacingUsesTheBlocksOfTheReplacedOne) {
  const auto cache = Make(2);
  UpdateAll(cache.get(), Range(0, 4), 1);
  ASSERT_TRUE(cache->TryReserveSlot(0, Range(4, 6)));
  EXPECT_EQ(cache->pool().free_blocks(), 0);
  EXPECT_TRUE(cache->TryReserveSlot(0, Range(6, 8)));
  EXPECT_TRUE(cache->TryReserveSlot(1, Range(4, 8)));
  EXPECT_FALSE(cache->TryReserveSlot(1, Range(8, 9)));
  EXPECT_THAT(Audit(*cache), IsEmpty());

  const auto fork_source = Make(2);
  UpdateAll(fork_source.get(), Range(0, 4), 1);
  const auto fork = ForkOf(fork_source.get());
  ASSERT_TRUE(fork->TryReserveSlot(0, Range(0, 1)));  // a copy takes the last block
  ASSERT_TRUE(fork->TryReserveSlot(0, Range(4, 5)));  // it goes back and becomes the next one
  EXPECT_EQ(fork->block_table()[0], fork_source->block_table()[0]);
  EXPECT_THAT(Audit(*fork_source, fork.get()), IsEmpty());
}

TEST(PagedReservationTest, U1_ExhaustedUpdateChangesNothingAndKeepsTheReservation) {
  const auto cache = Make(3);
  UpdateAll(cache.get(), Range(0, 6), 1);
  const auto fork = ForkOf(cache.get());
  const auto slot = fork->TryReserveSlot(1, Range(6, 7));  // takes the last block
  ASSERT_TRUE(slot);
  Fill(*fork, *slot, 1, Range(6, 7), 2);
  const Snapshot before = Observe(*fork);
  EXPECT_THROW(Update(fork.get(), 0, {0}, 3), PoolExhausted);     // a copy
  EXPECT_THROW(Update(fork.get(), 0, {6, 8}, 3), PoolExhausted);  // a new block
  EXPECT_THROW(Update(fork.get(), 1, {4, 8}, 3), PoolExhausted);  // one comes back, two needed
  EXPECT_THROW(Update(fork.get(), 1, {20}, 3), PoolExhausted);    // the gap
  EXPECT_EQ(Observe(*fork), before);
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
  fork->CommitSlot(1, Range(6, 7));
  Model model(kGeometry);
  for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 6), 1);
  model.Write(1, Range(6, 7), 2);
  EXPECT_EQ(Difference(*fork, model), "");
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
}

TEST(PagedReservationTest, UpdateWithExactlyEnoughBlocksSucceeds) {
  const auto cache = Make(4);
  UpdateAll(cache.get(), Range(0, 6), 1);
  const auto fork = ForkOf(cache.get());
  ASSERT_TRUE(fork->TryReserveSlot(0, Range(6, 7)));
  Update(fork.get(), 0, {9, 4}, 2);  // its copy comes back, then a copy and a new block
  EXPECT_EQ(cache->pool().free_blocks(), 0);
  Model model(kGeometry);
  for (int32_t layer = 0; layer < 3; ++layer) model.Write(layer, Range(0, 6), 1);
  model.Write(0, std::vector<int32_t>{9, 4}, 2);
  EXPECT_EQ(Difference(*fork, model), "");
  EXPECT_THAT(Audit(*cache, fork.get()), IsEmpty());
}

}  // namespace
}  // namespace lockstep
