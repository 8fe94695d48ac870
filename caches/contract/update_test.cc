// Clauses U1 to U7 of caches/CONTRACT.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "caches/contract/fixture.h"

namespace lockstep::contract {
namespace {

class UpdateTest : public CacheTest {
 protected:
  // An Update with rows of one value; counts of rows may disagree with the positions.
  static void Raw(KvCache* cache, int32_t layer, const std::vector<int32_t>& positions,
                  size_t key_elements, size_t value_elements) {
    const std::vector<float> keys(key_elements, -127.0f), values(value_elements, -127.0f);
    cache->Update(layer, positions, keys, values);
  }
};
INSTANTIATE_TEST_SUITE_P(Caches, UpdateTest, testing::ValuesIn(EveryCache()), TestName);

class UpdateSlotTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, UpdateSlotTest, testing::ValuesIn(SlotCaches()), TestName);

class UpdateBlockTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, UpdateBlockTest, testing::ValuesIn(BlockCaches()), TestName);

class UpdateWindowTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, UpdateWindowTest, testing::ValuesIn(WindowCaches()), TestName);

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
const auto kStride = static_cast<size_t>(kGeometry.kv_stride());

TEST_P(UpdateTest, U1_ErrorsChangeNothing) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 6), 1);
  const Snapshot before = Observe(*cache);
  // The valid rows come first, so that a check made while writing would have written them.
  for (int32_t bad : {-1, kGeometry.max_length, kMax, kMin}) {
    EXPECT_THROW(Update(cache.get(), 1, {0, 6, 9, bad}, 2), std::out_of_range) << bad;
    EXPECT_EQ(Observe(*cache), before) << bad;
  }
  EXPECT_THROW(Update(cache.get(), 1, Range(15, 22), 2), std::out_of_range);
  EXPECT_THROW(Raw(cache.get(), 1, {0, 9}, 2 * kStride, kStride), std::invalid_argument);
  EXPECT_THROW(Raw(cache.get(), 1, {0, 9}, 2 * kStride - 1, 2 * kStride), std::invalid_argument);
  EXPECT_EQ(Observe(*cache), before);
}

TEST_P(UpdateSlotTest, U1_ErrorsKeepTheOpenReservation) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 2), 1);
  const auto slot = cache->TryReserveSlot(1, Range(2, 3));
  ASSERT_TRUE(slot);
  Fill(*cache, *slot, 1, Range(2, 3), 2);
  EXPECT_THROW(Update(cache.get(), 1, {0, -1}, 3), std::out_of_range);
  EXPECT_THROW(cache->Update(1, Range(0, 1), {}, {}), std::invalid_argument);
  cache->CommitSlot(1, Range(2, 3));
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) model.Write(layer, Range(0, 2), 1);
  model.Write(1, Range(2, 3), 2);
  EXPECT_EQ(Difference(*cache, model), "");
}

TEST_P(UpdateTest, U2_LastOfADuplicateWins) {
  const auto cache = Make();
  const std::vector<int32_t> positions = {3, 1, 3, 3};
  std::vector<float> keys, values;
  for (int version : {1, 2, 3, 4}) {
    const int32_t position = positions[static_cast<size_t>(version - 1)];
    const auto k = Row(kGeometry, 0, position, version, Half::kKeys);
    const auto v = Row(kGeometry, 0, position, version, Half::kValues);
    keys.insert(keys.end(), k.begin(), k.end());
    values.insert(values.end(), v.begin(), v.end());
  }
  cache->Update(0, positions, keys, values);
  Model model(kGeometry);
  model.Write(0, Range(1, 2), 2);
  model.Write(0, Range(3, 4), 4);
  EXPECT_EQ(Difference(*cache, model), "");
}

TEST_P(UpdateTest, U2_AnyOrderIsLegal) {
  const auto cache = Make();
  Model model(kGeometry);
  int version = 0;
  const std::vector<std::vector<int32_t>> inputs = {
      {4, 3, 2}, {20, 0}, {5, 5}, {5, 4}, {5, 7}, {0, 2, 1}, {16, 15, 17}, {20, 19, 18, 0}};
  for (const auto& positions : inputs) {
    Update(cache.get(), 2, positions, ++version);
    model.Write(2, positions, version);
    EXPECT_EQ(Difference(*cache, model), "");
  }
}

TEST_P(UpdateTest, U2_OverwritesOneRowAndNoOther) {
  for (int32_t position = 0; position < kGeometry.max_length; ++position) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 21), 1);
    Update(cache.get(), 1, {position}, 2);
    Model model(kGeometry);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      model.Write(layer, Range(0, 21), 1);
    }
    model.Write(1, Range(position, position + 1), 2);
    EXPECT_EQ(Difference(*cache, model), "") << position;
  }
}

TEST_P(UpdateTest, U3_EmptyHasNoEffect) {
  const auto cache = Make();
  const Snapshot empty = Observe(*cache);
  cache->Update(0, {}, {}, {});
  EXPECT_EQ(Observe(*cache), empty);
  UpdateAll(cache.get(), Range(0, 4), 1);
  const Snapshot before = Observe(*cache);
  cache->Update(2, {}, {}, {});
  EXPECT_EQ(Observe(*cache), before);
}

TEST_P(UpdateSlotTest, U3_EmptyKeepsTheReservation) {
  const auto cache = Make();
  ASSERT_TRUE(cache->TryReserveSlot(0, Range(0, 1)));
  cache->Update(0, {}, {}, {});
  EXPECT_NO_THROW(cache->CommitSlot(0, Range(0, 1)));
}

TEST_P(UpdateTest, U4_ChecksLayerThenElementsThenPositions) {
  const auto cache = Make();
  for (int32_t layer : {-1, kGeometry.num_layers, kMax, kMin}) {
    EXPECT_THROW(Raw(cache.get(), layer, {0}, kStride, kStride), std::out_of_range);
    EXPECT_THROW(cache->Update(layer, {}, {}, {}), std::out_of_range);
    EXPECT_THROW(Raw(cache.get(), layer, {-1}, 1, 1), std::out_of_range);
  }
  EXPECT_THROW(Raw(cache.get(), 0, {-1}, kStride, 0), std::invalid_argument);
  EXPECT_THROW(Raw(cache.get(), 0, {0}, 0, kStride), std::invalid_argument);
  EXPECT_THROW(Raw(cache.get(), 0, {0}, kStride + 1, kStride), std::invalid_argument);
  EXPECT_THROW(Raw(cache.get(), 0, {0}, 2 * kStride, 2 * kStride), std::invalid_argument);
  EXPECT_THROW(Raw(cache.get(), 0, {}, kStride, kStride), std::invalid_argument);
  EXPECT_THROW(Raw(cache.get(), 0, {21}, kStride, kStride), std::out_of_range);
  EXPECT_NO_THROW(Raw(cache.get(), 0, {20}, kStride, kStride));
}

TEST_P(UpdateWindowTest, U4_RefusesMoreRowsThanAStepMayHave) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 6), 1);
  const Snapshot before = Observe(*cache);
  const std::vector<int32_t> most(static_cast<size_t>(cache->max_step_rows()), 3);
  std::vector<int32_t> more = most;
  more.push_back(3);
  EXPECT_THROW(Update(cache.get(), 1, more, 2), std::invalid_argument);
  EXPECT_EQ(Observe(*cache), before);
  EXPECT_NO_THROW(Update(cache.get(), 1, most, 2));
}

TEST_P(UpdateBlockTest, U4_NoFreeBlockThrowsPoolExhausted) {
  const auto cache = Make(/*sequences=*/1);
  UpdateAll(cache.get(), Range(0, 21), 1);
  const auto fork = cache->Fork();
  const Snapshot before = Observe(*cache);
  EXPECT_THROW(Update(fork.get(), 0, {20}, 2), PoolExhausted);  // finds none for the copy
  EXPECT_EQ(Observe(*fork), before);
  fork->Rollback(0);
  EXPECT_THROW(Update(fork.get(), 0, {0}, 2), PoolExhausted);
  EXPECT_EQ(Observe(*cache).hash, before.hash);
  EXPECT_NO_THROW(Update(cache.get(), 0, {20}, 2));  // its own block again
}

TEST_P(UpdateTest, U5_LengthNeverShrinks) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 12), 1);
  for (int32_t position : {0, 3, 4, 11}) {
    Update(cache.get(), 1, {position}, 2);
    EXPECT_EQ(cache->length(1), 12);
  }
  Update(cache.get(), 1, {14, 2}, 3);
  EXPECT_EQ(cache->length(1), 15);
  EXPECT_EQ(cache->length(0), 12);
  EXPECT_EQ(cache->current_length(), 15);
}

TEST_P(UpdateSlotTest, U6_CancelsTheReservationOfItsLayerAlone) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 2), 1);
  for (int32_t layer : {0, 1}) {
    const auto slot = cache->TryReserveSlot(layer, Range(2, 3));
    ASSERT_TRUE(slot);
    Fill(*cache, *slot, layer, Range(2, 3), 2);
  }
  Update(cache.get(), 1, {0}, 3);
  EXPECT_THROW(cache->CommitSlot(1, Range(2, 3)), std::logic_error);
  cache->CommitSlot(0, Range(2, 3));
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) model.Write(layer, Range(0, 2), 1);
  model.Write(1, Range(0, 1), 3);
  model.Write(0, Range(2, 3), 2);
  EXPECT_EQ(Difference(*cache, model), "");
}

TEST_P(UpdateTest, U7_PositionsNeverOverflow) {
  const auto cache = Make();
  const Snapshot before = Observe(*cache);
  for (const auto& positions : std::vector<std::vector<int32_t>>{
           {kMax}, {kMax - 1, kMax}, {kMax, kMin}, {kMin, kMin + 1}, {-1, 0}, {20, 21}}) {
    EXPECT_FALSE(cache->TryReserveSlot(0, positions));
    EXPECT_THROW(cache->CommitSlot(0, positions), std::logic_error);
    EXPECT_THROW(Update(cache.get(), 0, positions, 1), std::out_of_range);
  }
  EXPECT_EQ(Observe(*cache), before);
}

TEST_P(UpdateTest, U7_RefusesAGeometryWhoseSizeOverflows) {
  const auto make = [&](KvGeometry geometry) { GetParam().make({.geometry = geometry}); };
  const int32_t even = kMax - 31;  // a multiple of 32
  EXPECT_THROW(make({kMax, kMax, even, kMax}), std::invalid_argument);
  EXPECT_THROW(make({1, kMax, even, kMax}), std::invalid_argument);
  EXPECT_THROW(make({kMax, 1, even, kMax}), std::invalid_argument);
  EXPECT_THROW(make({1 << 16, 1 << 16, 1 << 16, 1 << 16}), std::invalid_argument) << "2^64 is 0";
  EXPECT_THROW(make({1 << 16, 1 << 16, 1 << 16, 3 << 16}), std::invalid_argument);
  for (int32_t bad : {0, -1, kMin}) {
    EXPECT_THROW(make({bad, 3, 32, 8}), std::invalid_argument);
    EXPECT_THROW(make({3, bad, 32, 8}), std::invalid_argument);
    EXPECT_THROW(make({3, 3, bad, 8}), std::invalid_argument);
    EXPECT_THROW(make({3, 3, 32, bad}), std::invalid_argument);
  }
}

}  // namespace
}  // namespace lockstep::contract
