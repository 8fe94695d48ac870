// Clauses V1 to V3 of caches/CONTRACT.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "caches/contract/fixture.h"

namespace lockstep::contract {
namespace {

class ReadingTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, ReadingTest, testing::ValuesIn(EveryCache()), TestName);

class ReadingSlotTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, ReadingSlotTest, testing::ValuesIn(SlotCaches()), TestName);

constexpr int32_t kHuge = std::numeric_limits<int32_t>::max();

TEST_P(ReadingTest, V1_ShowsEachLayerAtItsOwnLength) {
  const auto cache = Make();
  Model model(kGeometry);
  EXPECT_EQ(Difference(*cache, model), "");
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    Update(cache.get(), layer, Range(0, 5), 1);
    model.Write(layer, Range(0, 5), 1);
    EXPECT_EQ(Difference(*cache, model), "");
    EXPECT_EQ(cache->current_length(), 5);
  }
  Update(cache.get(), 1, Range(5, 7), 1);
  model.Write(1, Range(5, 7), 1);
  EXPECT_EQ(Difference(*cache, model), "");
  EXPECT_EQ(cache->current_length(), 7);
}

TEST_P(ReadingTest, V1_SegmentsCoverTheLengthInOrder) {
  const auto cache = Make();
  KvView view;
  for (int32_t end = 1; end <= kGeometry.max_length; ++end) {
    Update(cache.get(), 1, {end - 1}, 1);
    cache->View(1, &view);
    EXPECT_EQ(view.length, end);
    int32_t next = 0;
    for (const KvSegment& segment : view.segments) {
      EXPECT_EQ(segment.first, next);
      EXPECT_GT(segment.count, 0);
      EXPECT_NE(segment.keys, nullptr);
      EXPECT_NE(segment.values, nullptr);
      EXPECT_TRUE(segment.key_type == cache->key_type() ||
                  segment.key_type == GetParam().window_type);
      EXPECT_TRUE(segment.value_type == cache->value_type() ||
                  segment.value_type == GetParam().window_type);
      next += segment.count;
    }
    EXPECT_EQ(next, end);
  }
}

TEST_P(ReadingTest, V1_RefusesABadLayerOrQuery) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 3), 1);
  KvView view;
  for (int32_t layer : {-1, kGeometry.num_layers, kHuge, std::numeric_limits<int32_t>::min()}) {
    EXPECT_THROW(cache->length(layer), std::out_of_range);
    EXPECT_THROW(cache->View(layer, &view), std::out_of_range);
    EXPECT_THROW(cache->ViewForQuery(layer, 0, &view), std::out_of_range);
  }
  for (int32_t position : {-1, 3, kHuge}) {
    EXPECT_THROW(cache->ViewForQuery(0, position, &view), std::out_of_range);
  }
  EXPECT_NO_THROW(cache->ViewForQuery(0, 2, &view));
  EXPECT_EQ(view.length, 3);
}

TEST_P(ReadingTest, V1_ViewIsWhatTheQueryAtTheLastPositionReads) {
  const auto cache = Make();
  KvView view, query;
  for (int32_t end = 1; end <= 9; ++end) {
    Update(cache.get(), 2, {end - 1}, 1);
    cache->View(2, &view);
    cache->ViewForQuery(2, end - 1, &query);
    const KvRows a = DecodeRows(view, kGeometry.kv_stride());
    const KvRows b = DecodeRows(query, kGeometry.kv_stride());
    EXPECT_EQ(Bits(a.keys), Bits(b.keys));
    EXPECT_EQ(Bits(a.values), Bits(b.values));
  }
}

TEST_P(ReadingTest, V2_GapRowsReadPositiveZero) {
  const auto cache = Make();
  Model model(kGeometry);
  Update(cache.get(), 0, {2}, 1);  // a gap at the start
  model.Write(0, Range(2, 3), 1);
  EXPECT_EQ(Difference(*cache, model), "");
  Update(cache.get(), 0, {20, 7}, 1);  // two gaps at once, in decreasing order
  model.Write(0, std::vector<int32_t>{20, 7}, 1);
  EXPECT_EQ(Difference(*cache, model), "");
  Update(cache.get(), 0, {1}, 1);  // a gap row that is written later
  model.Write(0, Range(1, 2), 1);
  EXPECT_EQ(Difference(*cache, model), "");
}

TEST_P(ReadingTest, V2_GapRowsNeverShowRolledBackRows) {
  for (int32_t keep : {0, 1, 3, 4, 5, 15, 16, 17, 20}) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 21), 1);
    cache->Rollback(keep);
    Model model(kGeometry);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      model.Write(layer, Range(0, keep), 1);
      Update(cache.get(), layer, {20}, 2);
      model.Write(layer, Range(20, 21), 2);
    }
    EXPECT_EQ(Difference(*cache, model), "") << "kept " << keep;
  }
}

TEST_P(ReadingSlotTest, V2_CommittedGapRowsReadPositiveZero) {
  for (int32_t keep : {0, 1, 4, 15, 16, 18}) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 21), 1);
    cache->Rollback(keep);
    Model model(kGeometry);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      model.Write(layer, Range(0, keep), 1);
      ASSERT_TRUE(WriteDirect(cache.get(), layer, {20}, 2));
      model.Write(layer, Range(20, 21), 2);
    }
    EXPECT_EQ(Difference(*cache, model), "") << "kept " << keep;
  }
}

// Rows of a slot that was given up must not become gap rows either.
TEST_P(ReadingSlotTest, V2_GapRowsNeverShowAnAbandonedSlot) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 1), 1);
  const auto slot = cache->TryReserveSlot(1, Range(3, 4));
  ASSERT_TRUE(slot);
  Fill(*cache, *slot, 1, Range(3, 4), 5);
  Update(cache.get(), 1, {6}, 2);
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) model.Write(layer, Range(0, 1), 1);
  model.Write(1, Range(6, 7), 2);
  EXPECT_EQ(Difference(*cache, model), "");
}

TEST_P(ReadingTest, V3_ReadingChangesNothing) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 9), 1);
  const Snapshot before = Observe(*cache);
  for (int i = 0; i < 2; ++i) {
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      KvView view;
      cache->View(layer, &view);
      cache->ViewForQuery(layer, 3, &view);
      DigestOfLayer(*cache, layer);
    }
    EXPECT_EQ(Observe(*cache), before);
  }
}

TEST_P(ReadingSlotTest, V3_ReadingKeepsReservationsAndTheirRows) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 3), 1);
  const auto slot = cache->TryReserveSlot(0, Range(3, 4));
  ASSERT_TRUE(slot);
  Fill(*cache, *slot, 0, Range(3, 4), 2);
  const Snapshot before = Observe(*cache);
  EXPECT_EQ(Observe(*cache), before);
  cache->CommitSlot(0, Range(3, 4));
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) model.Write(layer, Range(0, 3), 1);
  model.Write(0, Range(3, 4), 2);
  EXPECT_EQ(Difference(*cache, model), "");
}

}  // namespace
}  // namespace lockstep::contract
