// Clauses R1 to R7 of caches/CONTRACT.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/contract/fixture.h"

namespace lockstep::contract {
namespace {

class ReserveTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, ReserveTest, testing::ValuesIn(EveryCache()), TestName);

class ReserveSlotTest : public CacheTest {
 protected:
  // Runs [first, end) that one slot can hold, of every length, anywhere.
  std::vector<std::vector<int32_t>> Runs() const {
    std::vector<std::vector<int32_t>> runs;
    for (int32_t first = 0; first < kGeometry.max_length; ++first) {
      for (int32_t end = first + 1; end <= kGeometry.max_length; ++end) {
        if (Fits(first, end)) runs.push_back(Range(first, end));
      }
    }
    // Each position begins as many runs as there are positions left in its piece.
    EXPECT_GE(runs.size(), static_cast<size_t>(kGeometry.max_length));
    return runs;
  }
  bool Fits(int32_t first, int32_t end) const {
    const int32_t block = GetParam().block_size;
    return block == 0 || first / block == (end - 1) / block;
  }
};
INSTANTIATE_TEST_SUITE_P(Caches, ReserveSlotTest, testing::ValuesIn(SlotCaches()), TestName);

class ReserveBlockTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, ReserveBlockTest, testing::ValuesIn(BlockCaches()), TestName);

class ReserveSlotlessTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, ReserveSlotlessTest, testing::ValuesIn(SlotlessCaches()),
                         TestName);

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

const std::vector<std::vector<int32_t>> kRefused = {
    {},        {0, 2},    {0, 2, 3},  {1, 0},    {0, 0}, {2, 2, 3},        {-1},
    {-1, 0},   {kMin},    {21},       {20, 21},  {kMax}, {kMax - 1, kMax}, {kMax, kMin},
    {5, 6, 8}, {5, 4, 3}, {3, 4, -5}, {0, kMin},
};

TEST_P(ReserveTest, R1_BadLayerThrowsBeforeAnyOtherCheck) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 2), 1);
  const Snapshot before = Observe(*cache);
  for (int32_t layer : {-1, kGeometry.num_layers, kMax, kMin}) {
    EXPECT_THROW(cache->TryReserveSlot(layer, Range(2, 3)), std::out_of_range);
    EXPECT_THROW(cache->TryReserveSlot(layer, Range(8, 9)), std::out_of_range);
    for (const auto& positions : kRefused) {
      EXPECT_THROW(cache->TryReserveSlot(layer, positions), std::out_of_range);
    }
    EXPECT_EQ(Observe(*cache), before);
  }
}

TEST_P(ReserveTest, R2_RefusesWithoutObservableChange) {
  for (int32_t length : {0, 5, 20, 21}) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, length), 1);
    const Snapshot before = Observe(*cache);
    for (const auto& positions : kRefused) {
      EXPECT_FALSE(cache->TryReserveSlot(1, positions)) << testing::PrintToString(positions);
      EXPECT_EQ(Observe(*cache), before) << testing::PrintToString(positions);
    }
  }
}

TEST_P(ReserveSlotTest, R2_RefusalKeepsTheOpenReservation) {
  const auto cache = Make();
  const auto slot = cache->TryReserveSlot(1, Range(0, 1));
  ASSERT_TRUE(slot);
  Fill(*cache, *slot, 1, Range(0, 1), 1);
  const Snapshot before = Observe(*cache);
  for (const auto& positions : kRefused) {
    EXPECT_FALSE(cache->TryReserveSlot(1, positions));
    EXPECT_EQ(Observe(*cache), before) << testing::PrintToString(positions);
  }
  cache->CommitSlot(1, Range(0, 1));
  Model model(kGeometry);
  model.Write(1, Range(0, 1), 1);
  EXPECT_EQ(Difference(*cache, model), "");
}

// Which runs are granted, exhaustively: those inside [0, max_length) and inside one block.
TEST_P(ReserveSlotTest, R2_GrantsExactlyTheRunsInOnePiece) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 3), 1);
  const Snapshot before = Observe(*cache);
  for (int32_t first = -1; first <= kGeometry.max_length; ++first) {
    for (int32_t end = first + 1; end <= kGeometry.max_length + 1; ++end) {
      const bool inside = first >= 0 && end <= kGeometry.max_length && Fits(first, end);
      EXPECT_EQ(cache->TryReserveSlot(2, Range(first, end)).has_value(), inside)
          << "[" << first << ", " << end << ")";
    }
  }
  cache->Rollback(cache->current_length());
  EXPECT_EQ(Observe(*cache), before);
}

TEST_P(ReserveBlockTest, R2_RefusesWhenNoBlockIsFree) {
  const auto cache = Make(/*sequences=*/1);
  UpdateAll(cache.get(), Range(0, 21), 1);
  const auto fork = cache->Fork();
  const Snapshot before = Observe(*fork);
  for (int32_t position : {0, 4, 20}) {
    EXPECT_FALSE(fork->TryReserveSlot(0, Range(position, position + 1)));  // no block for the copy
    EXPECT_EQ(Observe(*fork), before);
  }
  fork->Clear();
  EXPECT_FALSE(fork->TryReserveSlot(0, Range(0, 1)));
  EXPECT_TRUE(cache->TryReserveSlot(0, Range(20, 21)));  // a block of its own again
}

TEST_P(ReserveSlotlessTest, R3_NeverGrantsHostSpans) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 4), 1);
  const Snapshot before = Observe(*cache);
  for (int32_t first : {0, 3, 4, 20}) {
    EXPECT_FALSE(cache->TryReserveSlot(0, Range(first, first + 1)));
    EXPECT_FALSE(cache->TryReserveSlot(2, Range(first, std::min(21, first + 3))));
  }
  EXPECT_EQ(Observe(*cache), before);
}

TEST_P(ReserveSlotTest, R4_SpansAreTheCachesOwnAlignedMemory) {
  for (const auto& positions : Runs()) {
    const auto cache = Make();
    const auto slot = cache->TryReserveSlot(1, positions);
    ASSERT_TRUE(slot);
    const auto elements = positions.size() * static_cast<size_t>(kGeometry.kv_stride());
    ASSERT_EQ(slot->keys.size(), elements);
    ASSERT_EQ(slot->values.size(), elements);
    // Rows of 96 floats are whole cache lines, so every row is aligned where row 0 is.
    EXPECT_EQ(std::bit_cast<uintptr_t>(slot->keys.data()) % kCacheAlignment, 0u);
    EXPECT_EQ(std::bit_cast<uintptr_t>(slot->values.data()) % kCacheAlignment, 0u);
    Fill(*cache, *slot, 1, positions, 1);
    cache->CommitSlot(1, positions);
    KvView view;
    cache->View(1, &view);
    const KvSegment& last = view.segments.back();
    const auto skip = static_cast<size_t>(positions.front() - last.first);
    const auto stride = static_cast<size_t>(kGeometry.kv_stride());
    EXPECT_EQ(reinterpret_cast<const float*>(last.keys) + skip * stride, slot->keys.data());
    EXPECT_EQ(reinterpret_cast<const float*>(last.values) + skip * stride, slot->values.data());
  }
}

// Whatever the writer puts into its spans, no other row of any layer changes.
TEST_P(ReserveSlotTest, R4_WritesThroughTheSpansReachNoOtherRow) {
  for (const auto& positions : Runs()) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 21), 1);
    const auto slot = cache->TryReserveSlot(1, positions);
    ASSERT_TRUE(slot);
    Fill(*cache, *slot, 1, positions, 2);
    cache->CommitSlot(1, positions);
    Model model(kGeometry);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      model.Write(layer, Range(0, 21), 1);
    }
    model.Write(1, positions, 2);
    ASSERT_EQ(Difference(*cache, model), "") << testing::PrintToString(positions);
  }
}

// What happens at other layers, and reading, leaves the content of an open slot alone.
TEST_P(ReserveSlotTest, R4_CacheDoesNotTouchAnOpenSlot) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 2), 1);
  const auto slot = cache->TryReserveSlot(1, Range(2, 3));
  ASSERT_TRUE(slot);
  Fill(*cache, *slot, 1, Range(2, 3), 2);
  const auto keys = Bits(slot->keys), values = Bits(slot->values);
  Update(cache.get(), 0, {2, 9, 20}, 3);
  ASSERT_TRUE(WriteDirect(cache.get(), 2, Range(2, 3), 3));
  ASSERT_TRUE(cache->TryReserveSlot(0, Range(4, 5)));
  EXPECT_FALSE(cache->TryReserveSlot(1, {}));
  cache->CommitSlot(1, Range(0, 2));  // already published: a no-op [C2]
  Observe(*cache);
  EXPECT_EQ(Bits(slot->keys), keys);
  EXPECT_EQ(Bits(slot->values), values);
}

TEST_P(ReserveSlotTest, R5_RowsPastTheLengthStayInvisibleUntilCommit) {
  for (int32_t first : {2, 3, 8}) {  // the next row, and after a gap
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 2), 1);
    const Snapshot before = Observe(*cache);
    const auto slot = cache->TryReserveSlot(1, Range(first, first + 1));
    ASSERT_TRUE(slot);
    Fill(*cache, *slot, 1, Range(first, first + 1), 2);
    Snapshot during = Observe(*cache);
    during.blocks = before.blocks;  // a new block may be held meanwhile
    EXPECT_EQ(during, before) << first;
  }
}

TEST_P(ReserveSlotTest, R5_OverwriteLeavesEveryOtherRowReadable) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 10), 1);
  const auto slot = cache->TryReserveSlot(1, Range(4, 5));
  ASSERT_TRUE(slot);
  std::ranges::fill(slot->keys, 5.0f);
  std::ranges::fill(slot->values, 6.0f);
  const auto stride = static_cast<size_t>(kGeometry.kv_stride());
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    model.Write(layer, Range(0, 10), 1);
    KvRows got = Read(*cache, layer), want = model.rows(layer);
    if (layer == 1) {  // the slot's own row is unspecified
      for (size_t i = 4 * stride; i < 5 * stride; ++i) {
        got.keys[i] = want.keys[i];
        got.values[i] = want.values[i];
      }
    }
    EXPECT_EQ(Bits(got.keys), Bits(want.keys));
    EXPECT_EQ(Bits(got.values), Bits(want.values));
  }
}

TEST_P(ReserveSlotTest, R6_SecondReservationReplacesTheFirst) {
  const auto cache = Make();
  ASSERT_TRUE(cache->TryReserveSlot(1, Range(4, 5)));
  const auto slot = cache->TryReserveSlot(1, Range(0, 1));
  ASSERT_TRUE(slot);
  Fill(*cache, *slot, 1, Range(0, 1), 1);
  EXPECT_THROW(cache->CommitSlot(1, Range(4, 5)), std::logic_error);
  cache->CommitSlot(1, Range(0, 1));
  EXPECT_THROW(cache->CommitSlot(1, Range(4, 5)), std::logic_error);
  Model model(kGeometry);
  model.Write(1, Range(0, 1), 1);
  EXPECT_EQ(Difference(*cache, model), "");
}

TEST_P(ReserveSlotTest, R6_LayersAreIndependent) {
  const auto cache = Make();
  std::vector<KvSlot> slots;
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    const auto slot = cache->TryReserveSlot(layer, Range(layer, layer + 1));
    ASSERT_TRUE(slot);
    slots.push_back(*slot);
  }
  Model model(kGeometry);
  for (int32_t layer : {2, 0, 1}) {
    Fill(*cache, slots[static_cast<size_t>(layer)], layer, Range(layer, layer + 1), 1);
    cache->CommitSlot(layer, Range(layer, layer + 1));
    model.Write(layer, Range(layer, layer + 1), 1);
    EXPECT_EQ(Difference(*cache, model), "");
  }
}

TEST_P(ReserveSlotTest, R7_SlotIsExclusivelyOwned) {
  for (const auto& positions : Runs()) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 7), 1);
    const auto fork = cache->Fork();
    const Digest source = DigestOfCache(*cache);
    const auto slot = fork->TryReserveSlot(1, positions);
    ASSERT_TRUE(slot);
    std::ranges::fill(slot->keys, 5.0f);
    std::ranges::fill(slot->values, 6.0f);
    EXPECT_EQ(DigestOfCache(*cache), source) << testing::PrintToString(positions);
    fork->CommitSlot(1, positions);
    EXPECT_EQ(DigestOfCache(*cache), source) << testing::PrintToString(positions);
  }
}

}  // namespace
}  // namespace lockstep::contract
