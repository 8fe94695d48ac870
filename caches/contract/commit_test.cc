// Clauses C1 to C3 of caches/CONTRACT.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "caches/contract/fixture.h"
#include "caches/random.h"

namespace lockstep::contract {
namespace {

class CommitTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, CommitTest, testing::ValuesIn(EveryCache()), TestName);

class CommitSlotTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, CommitSlotTest, testing::ValuesIn(SlotCaches()), TestName);

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

TEST_P(CommitSlotTest, C1_PublishesTheRowsAtThatLayer) {
  const auto cache = Make();
  Model model(kGeometry);
  for (int32_t position = 0; position < kGeometry.max_length; ++position) {
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      ASSERT_TRUE(WriteDirect(cache.get(), layer, {position}, 1));
      model.Write(layer, Range(position, position + 1), 1);
      ASSERT_EQ(Difference(*cache, model), "");
    }
  }
}

TEST_P(CommitSlotTest, C1_AdvancesTheLengthAsUpdateDoes) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 10), 1);
  ASSERT_TRUE(WriteDirect(cache.get(), 1, {3}, 2));
  EXPECT_EQ(cache->length(1), 10);
  ASSERT_TRUE(WriteDirect(cache.get(), 1, {9}, 2));
  EXPECT_EQ(cache->length(1), 10);
  ASSERT_TRUE(WriteDirect(cache.get(), 1, {10}, 2));
  EXPECT_EQ(cache->length(1), 11);
  ASSERT_TRUE(WriteDirect(cache.get(), 1, {20}, 2));
  EXPECT_EQ(cache->length(1), 21);
  EXPECT_EQ(cache->length(0), 10);
}

TEST_P(CommitTest, C2_NoOpWhenAllPositionsArePublished) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 7), 1);
  const Snapshot before = Observe(*cache);
  for (const auto& positions :
       std::vector<std::vector<int32_t>>{{}, {0}, {6}, Range(0, 7), {6, 2, 2}}) {
    EXPECT_NO_THROW(cache->CommitSlot(1, positions));
    EXPECT_EQ(Observe(*cache), before);
  }
}

TEST_P(CommitTest, C2_LogicErrorWithoutAReservation) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 7), 1);
  const Snapshot before = Observe(*cache);
  for (const auto& positions : std::vector<std::vector<int32_t>>{
           {7}, {6, 7}, {0, 20}, {-1}, {0, -1}, {kMin}, {21}, {kMax}, Range(0, 8)}) {
    EXPECT_THROW(cache->CommitSlot(1, positions), std::logic_error)
        << testing::PrintToString(positions);
    EXPECT_EQ(Observe(*cache), before);
  }
}

TEST_P(CommitTest, C2_BadLayerThrowsFirst) {
  const auto cache = Make();
  for (int32_t layer : {-1, kGeometry.num_layers, kMax, kMin}) {
    EXPECT_THROW(cache->CommitSlot(layer, Range(0, 1)), std::out_of_range);
    EXPECT_THROW(cache->CommitSlot(layer, {}), std::out_of_range);
  }
}

TEST_P(CommitSlotTest, C2_RepeatedCommitIsIdempotent) {
  const auto cache = Make();
  ASSERT_TRUE(WriteDirect(cache.get(), 2, Range(0, 1), 1));
  const Snapshot before = Observe(*cache);
  EXPECT_NO_THROW(cache->CommitSlot(2, Range(0, 1)));
  EXPECT_EQ(Observe(*cache), before);
}

TEST_P(CommitSlotTest, C2_OtherPositionsLeaveTheReservationOpen) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 4), 1);
  const int32_t count = std::min(SlotRows(), 3);
  const auto run = Range(4, 4 + count);
  const auto slot = cache->TryReserveSlot(1, run);
  ASSERT_TRUE(slot);
  Fill(*cache, *slot, 1, run, 2);
  const Snapshot before = Observe(*cache);
  for (const auto& positions : std::vector<std::vector<int32_t>>{
           Range(4, 5 + count), Range(5, 5 + count), Range(3, 4 + count), {4, 4}, {20}}) {
    EXPECT_THROW(cache->CommitSlot(1, positions), std::logic_error)
        << testing::PrintToString(positions);
  }
  if (count > 1) {
    EXPECT_THROW(cache->CommitSlot(1, Range(4, 3 + count)), std::logic_error);
  }
  EXPECT_THROW(cache->CommitSlot(0, run), std::logic_error);
  cache->CommitSlot(1, {});
  cache->CommitSlot(1, Range(0, 2));
  EXPECT_EQ(Observe(*cache), before);
  cache->CommitSlot(1, run);
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) model.Write(layer, Range(0, 4), 1);
  model.Write(1, run, 2);
  EXPECT_EQ(Difference(*cache, model), "");
}

// The same rows by both paths, with everything observable compared after every write.
TEST_P(CommitSlotTest, C3_EqualsUpdate) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Random random(seed);
    const auto direct = Make(), legacy = Make();
    for (int step = 0; step < 25; ++step) {
      const int32_t layer = random.Between(0, kGeometry.num_layers - 1);
      int32_t first = direct->length(layer);  // mostly append, as decoding does
      if (random.Below(3) == 0 || first == kGeometry.max_length) {
        first = random.Between(0, kGeometry.max_length - 1);
      }
      const int32_t room = std::min(SlotRows() - first % SlotRows(), kGeometry.max_length - first);
      const auto positions = Range(first, first + random.Between(1, room));
      ASSERT_TRUE(WriteDirect(direct.get(), layer, positions, step));
      Update(legacy.get(), layer, positions, step);
      ASSERT_EQ(Observe(*direct), Observe(*legacy)) << "seed " << seed << " step " << step;
    }
  }
}

// Values that a conversion on the way would change.
TEST_P(CommitSlotTest, C3_KeepsEveryBitOfF32Rows) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> special = {0.0f,         -0.0f,    nan,
                                      -nan,         INFINITY, -INFINITY,
                                      1e-45f,       -1e-40f,  std::numeric_limits<float>::max(),
                                      1.0f + 1e-7f, 0.1f};
  const auto direct = Make(), legacy = Make();
  std::vector<float> keys(static_cast<size_t>(kGeometry.kv_stride()));
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = special[i % special.size()];
  const std::vector<float> values(keys.rbegin(), keys.rend());
  const auto slot = direct->TryReserveSlot(1, Range(0, 1));
  ASSERT_TRUE(slot);
  std::ranges::copy(keys, slot->keys.begin());
  std::ranges::copy(values, slot->values.begin());
  direct->CommitSlot(1, Range(0, 1));
  legacy->Update(1, Range(0, 1), keys, values);
  EXPECT_EQ(Bits(Read(*direct, 1).keys), Bits(keys));
  EXPECT_EQ(Bits(Read(*direct, 1).values), Bits(values));
  EXPECT_EQ(Observe(*direct), Observe(*legacy));
}

}  // namespace
}  // namespace lockstep::contract
