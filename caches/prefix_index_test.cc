#include "caches/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "caches/cache_file.h"
#include "caches/prefix_test_util.h"
#include "caches/random.h"
#include "caches/simple_kv_cache.h"

namespace lockstep {
namespace {

using prefix_test::Compute;
using prefix_test::Holds;
using prefix_test::Ids;
using prefix_test::Key;
using prefix_test::kSmall;
using prefix_test::NewCache;
using prefix_test::NewPool;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Ids Counted(int32_t count, int32_t first = 1) {
  Ids ids(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = first + i;
  return ids;
}

// An index over blocks of 3 positions.
class PrefixIndexTest : public testing::Test {
 protected:
  void Make(int32_t blocks, int32_t hash_bits = 128) {
    index_.reset();
    pool_ = NewPool(3, blocks);
    index_ = std::make_unique<PrefixIndex>(*NewCache(pool_), hash_bits);
  }

  // A new sequence with the rows of `ids`, what is known of them attached; registers them.
  std::unique_ptr<PagedKvCache> Admit(const Ids& ids, const Digest& key = Key(1)) {
    auto cache = NewCache(pool_);
    attached_ = index_->Attach(key, ids, cache.get());
    Compute(key, ids, /*direct=*/true, cache.get());
    index_->Register(key, ids, *cache);
    EXPECT_TRUE(Holds(key, ids, *cache));
    return cache;
  }

  // Rows that a new sequence gets, which are then looked at, and given back.
  int32_t Attached(const Ids& ids, const Digest& key = Key(1)) {
    const auto cache = NewCache(pool_);
    const int32_t rows = index_->Attach(key, ids, cache.get());
    EXPECT_TRUE(Holds(key, std::span(ids).first(static_cast<size_t>(rows)), *cache));
    return rows;
  }

  std::vector<std::string> Audit(std::vector<const PagedKvCache*> sequences) const {
    return AuditBlocks(*pool_, sequences, index_->blocks());
  }

  std::shared_ptr<BlockPool> pool_;
  std::unique_ptr<PrefixIndex> index_;
  int32_t attached_ = 0;
};

TEST_F(PrefixIndexTest, P1_OtherIdsAreNoHitWhateverTheirHash) {
  for (const int32_t bits : {0, 1, 2, 64, 70, 128}) {
    Make(8, bits);
    Admit({1, 2, 3, 4});
    EXPECT_EQ(Attached({1, 2, 3, 9}), 3) << bits;
    for (const int32_t other : {0, -1, 2, 257, 65537}) {
      EXPECT_EQ(Attached({other, 2, 3, 4}), 0) << other << ", " << bits;
      EXPECT_EQ(Attached({1, 2, 3 + 256, 4}), 0) << bits;
    }
  }
}

TEST_F(PrefixIndexTest, P1_OtherKeysAreNoHitWhateverTheirHash) {
  for (const int32_t bits : {0, 1, 128}) {
    Make(8, bits);
    Admit({1, 2, 3, 4}, Key(1));
    EXPECT_EQ(Attached({1, 2, 3, 4}, Key(2)), 0);
    EXPECT_EQ(Attached({1, 2, 3, 4}, Key(1)), 3);
  }
}

// The second blocks have the same ids, and other rows.
TEST_F(PrefixIndexTest, P1_EqualIdsBehindOtherIdsAreOtherBlocks) {
  Make(8);
  const Ids one = {1, 1, 1, 5, 5, 5, 9}, two = {2, 2, 2, 5, 5, 5, 9};
  Admit(one);
  Admit(two);
  EXPECT_EQ(Attached(one), 6);
  EXPECT_EQ(Attached(two), 6);
  EXPECT_EQ(Attached({5, 5, 5, 9}), 0);
  Make(8, 0);  // a hash that all share
  Admit(one);
  Admit(two);
  EXPECT_EQ(Attached(one), 3);
  EXPECT_EQ(Attached(two), 0);
  EXPECT_EQ(index_->counters().collisions, 2);
}

TEST_F(PrefixIndexTest, P2_AttachedRowsAreThoseThatWereComputed) {
  Make(12);
  const Ids ids = Counted(8);
  auto first = Admit(ids);
  first.reset();
  Ids other = ids;
  other.push_back(50);
  for (const bool direct : {true, false}) {
    const auto cold = NewCache(NewPool(3, 5, 9));
    Compute(Key(1), other, direct, cold.get());
    const auto warm = NewCache(pool_);
    EXPECT_EQ(index_->Attach(Key(1), other, warm.get()), 6);
    Compute(Key(1), other, direct, warm.get());
    EXPECT_EQ(DigestOfCache(*warm), DigestOfCache(*cold));
    EXPECT_EQ(warm->StorageDigest(), cold->StorageDigest());
    EXPECT_EQ(warm->name(), cold->name());
  }
  EXPECT_EQ(index_->counters().rows_attached, 12);
}

TEST_F(PrefixIndexTest, P3_FullBlocksAloneAndNeverTheLastId) {
  for (int32_t registered = 0; registered <= 10; ++registered) {
    Make(12);
    if (registered > 0) Admit(Counted(registered));
    EXPECT_THAT(index_->blocks(), SizeIs(registered / 3)) << registered;
    for (int32_t wanted = 0; wanted <= 12; ++wanted) {
      const int32_t expected = std::min(registered / 3, std::max(0, wanted - 1) / 3) * 3;
      EXPECT_EQ(Attached(Counted(wanted)), expected) << registered << ", " << wanted;
    }
  }
}

TEST_F(PrefixIndexTest, P3_AttachesNoMoreThanTheCacheHolds) {
  Make(12);
  Admit(Counted(13));
  KvGeometry shorter = kSmall;
  shorter.max_length = 8;
  PagedKvCache cache({.geometry = shorter, .block_size = 3, .pool = pool_});
  EXPECT_EQ(index_->Attach(Key(1), Counted(13), &cache), 6);
}

TEST_F(PrefixIndexTest, P4_WritesIntoRegisteredBlocksAreMadeToCopies) {
  for (const bool direct : {true, false}) {
    Make(12);
    const Ids ids = Counted(7);
    const auto writer = Admit(ids);
    const auto reader = NewCache(pool_);
    index_->Attach(Key(1), ids, reader.get());
    const auto fork = writer->Fork();
    for (const int32_t length : {4, 0}) {  // inside a block, and before all
      writer->Rollback(length);
      EXPECT_EQ(Attached(ids), 6);
      Ids other = Counted(length);
      other.insert(other.end(), {70, 71, 72});
      Compute(Key(1), other, direct, writer.get());
      EXPECT_TRUE(Holds(Key(1), other, *writer));
      EXPECT_TRUE(Holds(Key(1), std::span(ids).first(6), *reader));
      EXPECT_TRUE(Holds(Key(1), ids, *fork));
      EXPECT_EQ(Attached(ids), 6);
    }
    // An overwrite below the length, without a rollback.
    const std::vector<float> row(static_cast<size_t>(kSmall.kv_stride()), 1.5f);
    const int32_t position = 2;
    reader->Update(1, {&position, 1}, row, row);
    EXPECT_EQ(Attached(ids), 6);
    reader->Clear();
    EXPECT_EQ(Attached(ids), 6);
    EXPECT_THAT(Audit({writer.get(), reader.get(), static_cast<PagedKvCache*>(fork.get())}),
                IsEmpty());
  }
}

TEST_F(PrefixIndexTest, P5_TheIndexIsAHolder) {
  Make(8);
  auto cache = Admit(Counted(7));
  for (const int32_t block : index_->blocks()) EXPECT_EQ(pool_->references(block), 2);
  EXPECT_EQ(pool_->used_blocks(), 3);
  EXPECT_THAT(Audit({cache.get()}), IsEmpty());
  auto second = Admit(Counted(9));  // its last block is new
  EXPECT_EQ(attached_, 6);
  EXPECT_EQ(pool_->used_blocks(), 4);
  EXPECT_THAT(Audit({cache.get(), second.get()}), IsEmpty());
  EXPECT_THAT(AuditBlocks(*pool_, std::vector<const PagedKvCache*>{cache.get(), second.get()}, {}),
              SizeIs(3));
  cache.reset();
  second.reset();
  EXPECT_EQ(pool_->used_blocks(), 3);
  EXPECT_EQ(pool_->reclaimable_blocks(), 3);
  EXPECT_THAT(Audit({}), IsEmpty());
  index_->Clear();
  EXPECT_EQ(pool_->used_blocks(), 0);
  EXPECT_EQ(Attached(Counted(7)), 0);
}

TEST_F(PrefixIndexTest, P5_TheEndOfTheIndexReturnsItsBlocks) {
  Make(8);
  const auto cache = Admit(Counted(7));
  index_.reset();
  EXPECT_EQ(pool_->used_blocks(), 3);
  EXPECT_EQ(pool_->reclaimable_blocks(), 0);
  EXPECT_TRUE(Holds(Key(1), Counted(7), *cache));
  EXPECT_THAT(AuditBlocks(*pool_, std::vector<const PagedKvCache*>{cache.get()}), IsEmpty());
}

TEST_F(PrefixIndexTest, P6_BlocksAreGivenUpOnlyWhenNoneIsFree) {
  Make(4);
  Admit(Counted(6));
  EXPECT_EQ(pool_->free_blocks(), 2);
  auto cache = Admit(Counted(6, 20));
  EXPECT_EQ(index_->counters().evicted, 0);
  EXPECT_EQ(pool_->free_blocks(), 0);
  auto next = NewCache(pool_);
  Compute(Key(1), Counted(1, 40), /*direct=*/true, next.get());
  EXPECT_EQ(index_->counters().evicted, 1);
  EXPECT_THAT(Audit({cache.get(), next.get()}), IsEmpty());
  // The last block of the chain went first, the first one serves.
  EXPECT_EQ(Attached(Counted(7)), 3);
  EXPECT_EQ(Attached(Counted(7, 20)), 6);
}

TEST_F(PrefixIndexTest, P6_TheOneUsedLongestAgoGoesFirst) {
  Make(3);
  Admit({1, 1, 1});
  Admit({2, 2, 2});
  Admit({3, 3, 3});
  EXPECT_EQ(Attached({1, 1, 1, 1}), 3);
  const auto cache = NewCache(pool_);
  Compute(Key(1), Ids{9}, /*direct=*/false, cache.get());
  EXPECT_EQ(Attached({2, 2, 2, 2}), 0);
  EXPECT_EQ(Attached({1, 1, 1, 1}), 3);
  EXPECT_EQ(Attached({3, 3, 3, 3}), 3);
}

// The block is full of other rows now.
TEST_F(PrefixIndexTest, P6_WhatWasGivenUpIsNotFound) {
  Make(2);
  Admit(Counted(6));
  const auto cache = Admit(Counted(6, 30));
  EXPECT_EQ(index_->counters().evicted, 2);
  EXPECT_EQ(Attached(Counted(7)), 0);
  EXPECT_EQ(Attached(Counted(7, 30)), 6);
}

TEST_F(PrefixIndexTest, P6_BlocksInUseAreNeverGivenUp) {
  Make(3);
  const auto cache = Admit(Counted(7));
  const auto other = NewCache(pool_);
  const int32_t position = 0;
  EXPECT_FALSE(other->TryReserveSlot(0, {&position, 1}).has_value());
  EXPECT_THROW(Compute(Key(1), Counted(1), /*direct=*/false, other.get()), PoolExhausted);
  EXPECT_EQ(index_->counters().evicted, 0);
  EXPECT_TRUE(Holds(Key(1), Counted(7), *cache));
}

// The block before it is held by nobody else, but by it.
TEST_F(PrefixIndexTest, P6_ABlockBeforeOneInUseIsGivenUpAfterThatIsForgotten) {
  Make(4);
  auto first = Admit(Counted(3));
  auto second = NewCache(pool_);  // computes the same at the same time
  Compute(Key(1), Counted(6), /*direct=*/true, second.get());
  index_->Register(Key(1), Counted(6), *second);
  first.reset();
  EXPECT_THAT(index_->blocks(), SizeIs(2));
  EXPECT_EQ(pool_->reclaimable_blocks(), 1);
  const auto third = NewCache(pool_);
  Compute(Key(1), Counted(6, 50), /*direct=*/true, third.get());
  EXPECT_THAT(index_->blocks(), IsEmpty());
  EXPECT_TRUE(Holds(Key(1), Counted(6), *second));
  EXPECT_THAT(Audit({second.get(), third.get()}), IsEmpty());
}

TEST_F(PrefixIndexTest, P6_WhatNeedsBlocksCountsTheIndexesAsFree) {
  const int32_t position = 0;
  for (int way = 0; way < 3; ++way) {
    Make(2);
    Admit(Counted(6));
    EXPECT_EQ(pool_->free_blocks(), 0);
    const auto cache = NewCache(pool_);
    if (way == 0) {
      EXPECT_TRUE(cache->TryReserveSlot(0, {&position, 1}).has_value());
    }
    if (way == 1) Compute(Key(1), Ids{8}, /*direct=*/false, cache.get());
    if (way == 2) {
      const auto saved = NewCache(NewPool(4, 2));
      Compute(Key(1), Ids{7, 8, 9}, /*direct=*/false, saved.get());
      StateWriter writer;
      saved->SaveState(&writer);
      const auto file = writer.Finish();
      StateReader reader(file, "a save");
      cache->LoadState(&reader);
      EXPECT_TRUE(Holds(Key(1), Ids{7, 8, 9}, *cache));
    }
    EXPECT_EQ(index_->counters().evicted, 1);
    EXPECT_THAT(Audit({cache.get()}), IsEmpty());
  }
}

TEST_F(PrefixIndexTest, P7_RegistersOnlyWhatTheCacheHolds) {
  Make(8);
  const Ids ids = Counted(6);
  const auto cache = NewCache(pool_);
  Compute(Key(1), Counted(5), /*direct=*/true, cache.get());
  const auto refused = [&](const KvCache& of, const Ids& text) {
    EXPECT_THROW(index_->Register(Key(1), text, of), std::invalid_argument);
    EXPECT_THAT(index_->blocks(), IsEmpty());
  };
  refused(*cache, ids);  // a row too few
  const std::vector<float> row(static_cast<size_t>(kSmall.kv_stride()));
  const int32_t position = 5;
  cache->Update(0, {&position, 1}, row, row);
  refused(*cache, ids);  // the other layer has none
  cache->Rollback(5);
  Compute(Key(1), ids, /*direct=*/true, cache.get());
  ASSERT_TRUE(cache->TryReserveSlot(1, {&position, 1}).has_value());
  refused(*cache, ids);  // which may be written at any moment
  cache->Rollback(6);
  refused(SimpleKvCache(kSmall), {});
  refused(*NewCache(NewPool(3, 2)), {});
  EXPECT_EQ(index_->Register(Key(1), ids, *cache), 2);
  EXPECT_EQ(index_->Register(Key(1), ids, *cache), 0);
  EXPECT_THROW(index_->Register(Key(2), ids, *cache), std::invalid_argument);
  EXPECT_EQ(Attached(Counted(7), Key(2)), 0);
  EXPECT_EQ(Attached(Counted(7)), 6);
}

TEST_F(PrefixIndexTest, P7_AttachesToEmptyCachesOfItsPoolAlone) {
  Make(8);
  Admit(Counted(6));
  const auto refused = [&](KvCache* cache) {
    const Digest before = DigestOfCache(*cache);
    EXPECT_THROW(index_->Attach(Key(1), Counted(7), cache), std::invalid_argument);
    EXPECT_EQ(DigestOfCache(*cache), before);
  };
  const auto cache = NewCache(pool_);
  Compute(Key(1), Ids{1}, /*direct=*/true, cache.get());
  refused(cache.get());
  cache->Clear();
  const int32_t position = 0;
  ASSERT_TRUE(cache->TryReserveSlot(1, {&position, 1}).has_value());
  refused(cache.get());
  refused(NewCache(NewPool(3, 2)).get());
  SimpleKvCache simple(kSmall);
  refused(&simple);
  EXPECT_THROW(PrefixIndex{simple}, std::invalid_argument);
  EXPECT_EQ(index_->counters().hits, 0);
}

TEST_F(PrefixIndexTest, CountsWhatItDid) {
  Make(4);
  Admit(Counted(6));
  Admit(Counted(7));
  Admit(Counted(9, 30));
  EXPECT_EQ(index_->counters(), (PrefixCounters{.lookups = 3,
                                                .hits = 1,
                                                .rows_attached = 6,
                                                .registered = 5,
                                                .evicted = 1,
                                                .collisions = 0}));
}

}  // namespace
}  // namespace lockstep
