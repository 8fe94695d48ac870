// One test for each line of "Known wrong answers" in caches/CONTRACT.md: what public engines were
// seen to do, and what every cache must do instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/contract/fixture.h"
#include "caches/kv_layout.h"
#include "caches/storage_test_util.h"

namespace lockstep::contract {
namespace {

class KnownWrongAnswerTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, KnownWrongAnswerTest, testing::ValuesIn(EveryCache()), TestName);

class KnownWrongSlotAnswerTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, KnownWrongSlotAnswerTest, testing::ValuesIn(SlotCaches()),
                         TestName);

class KnownWrongBlockAnswerTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, KnownWrongBlockAnswerTest, testing::ValuesIn(BlockCaches()),
                         TestName);

class KnownWrongWindowAnswerTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, KnownWrongWindowAnswerTest, testing::ValuesIn(WindowCaches()),
                         TestName);

TEST_P(KnownWrongAnswerTest, CommitPastMaxLength) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 20), 1);
  const Snapshot before = Observe(*cache);
  EXPECT_FALSE(cache->TryReserveSlot(1, Range(20, 22)));
  EXPECT_THROW(cache->CommitSlot(1, Range(20, 22)), std::logic_error);
  EXPECT_THROW(cache->CommitSlot(1, Range(21, 22)), std::logic_error);
  EXPECT_EQ(Observe(*cache), before);
}

TEST_P(KnownWrongSlotAnswerTest, CommitPastMaxLengthWithAReservationBeforeIt) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 20), 1);
  ASSERT_TRUE(cache->TryReserveSlot(1, Range(20, 21)));
  EXPECT_THROW(cache->CommitSlot(1, Range(20, 22)), std::logic_error);
  EXPECT_EQ(cache->length(1), 20);
}

TEST_P(KnownWrongAnswerTest, CommitWithoutAReservation) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 3), 1);
  const Snapshot before = Observe(*cache);
  EXPECT_THROW(cache->CommitSlot(0, Range(3, 4)), std::logic_error);
  EXPECT_EQ(Observe(*cache), before);
}

TEST_P(KnownWrongAnswerTest, LengthShrinksWhenAnEarlierPositionIsRewritten) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 9), 1);
  Update(cache.get(), 0, {2}, 2);
  EXPECT_EQ(cache->length(0), 9);
  if (WriteDirect(cache.get(), 0, {2}, 3)) {
    EXPECT_EQ(cache->length(0), 9);
  }
}

// A prefill longer than the window must quantize the rows it was given, not what was in their
// place.
TEST_P(KnownWrongWindowAnswerTest, PrefillLongerThanTheWindowQuantizesUnwrittenRows) {
  const int32_t rows = 2 * GetParam().window + 3;
  const auto prefill = Make(), decode = Make();
  storage_test::WriteAll(prefill.get(), Range(0, rows), 1);
  for (int32_t position = 0; position < rows; ++position) {
    storage_test::WriteAll(decode.get(), {position}, 1);
  }
  EXPECT_EQ(DigestOfCache(*prefill), DigestOfCache(*decode));
  EXPECT_EQ(prefill->StorageDigest(), decode->StorageDigest());
}

// After a rollback the rows that follow must be quantized and evicted as if for the first time.
TEST_P(KnownWrongWindowAnswerTest, RollbackLeavesTheWindowBoundaryBehind) {
  const int32_t window = GetParam().window;
  for (int32_t keep = 0; keep <= 12; ++keep) {
    const auto rolled = Make(), plain = Make();
    const auto write = [](KvCache* cache, int32_t position, int32_t version) {
      storage_test::WriteAll(cache, {position}, version);
    };
    for (int32_t position = 0; position < 12; ++position) write(rolled.get(), position, 1);
    for (int32_t position = 0; position < keep; ++position) write(plain.get(), position, 1);
    rolled->Rollback(keep);
    // Once the window has moved past the rollback, both hold the same rows exactly again.
    const int32_t end = std::min(kGeometry.max_length, keep + window + 4);
    for (int32_t position = keep; position < end; ++position) {
      write(rolled.get(), position, 2);
      write(plain.get(), position, 2);
    }
    EXPECT_EQ(DigestOfCache(*rolled), DigestOfCache(*plain)) << "kept " << keep;
    EXPECT_EQ(rolled->StorageDigest(), plain->StorageDigest()) << "kept " << keep;
  }
}

TEST_P(KnownWrongBlockAnswerTest, AbandonedReservationLeaksItsBlock) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 4), 1);
  const Snapshot before = Observe(*cache);
  for (int round = 0; round < 50; ++round) {
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      ASSERT_TRUE(cache->TryReserveSlot(layer, Range(20, 21))) << round;
      ASSERT_TRUE(cache->TryReserveSlot(layer, Range(16, 17))) << round;
    }
    cache->Rollback(4);
    ASSERT_EQ(Observe(*cache), before) << round;
  }
}

TEST_P(KnownWrongSlotAnswerTest, CopyOnWriteAfterTheSpansWereHandedOut) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 6), 1);
  const auto fork = cache->Fork();
  const auto slot = fork->TryReserveSlot(1, Range(5, 6));
  ASSERT_TRUE(slot);
  const float* promised = slot->keys.data();
  Fill(*fork, *slot, 1, Range(5, 6), 2);
  EXPECT_EQ(Bits(Read(*cache, 1).keys), Bits(Rows(kGeometry, 1, Range(0, 6), 1, Half::kKeys)));
  fork->CommitSlot(1, Range(5, 6));
  KvView view;
  fork->View(1, &view);
  const KvSegment& last = view.segments.back();
  const float* row = reinterpret_cast<const float*>(last.keys) +
                     static_cast<int64_t>(5 - last.first) * kGeometry.kv_stride();
  EXPECT_EQ(row, promised);
  EXPECT_EQ(Bits(Read(*cache, 1).values), Bits(Rows(kGeometry, 1, Range(0, 6), 1, Half::kValues)));
}

TEST_P(KnownWrongAnswerTest, BadLayerCheckedAfterBlocksWereTaken) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 4), 1);
  const Snapshot before = Observe(*cache);
  for (int32_t layer : {-1, kGeometry.num_layers}) {
    EXPECT_THROW(cache->TryReserveSlot(layer, Range(16, 17)), std::out_of_range);
    const auto rows = Row(kGeometry, 0, 16, 1, Half::kKeys);
    EXPECT_THROW(cache->Update(layer, Range(16, 17), rows, rows), std::out_of_range);
    EXPECT_THROW(cache->CommitSlot(layer, Range(16, 17)), std::out_of_range);
    EXPECT_EQ(Observe(*cache), before);
  }
}

TEST_P(KnownWrongAnswerTest, GapRowsShowOldMemory) {
  for (bool direct : {false, true}) {
    const auto cache = Make();
    UpdateAll(cache.get(), Range(0, 21), 1);
    cache->Rollback(3);
    if (!direct) {
      Update(cache.get(), 1, {18}, 2);
    } else if (!WriteDirect(cache.get(), 1, {18}, 2)) {
      continue;
    }
    const KvRows rows = Read(*cache, 1);
    const auto stride = static_cast<size_t>(kGeometry.kv_stride());
    for (size_t i = 3 * stride; i < 18 * stride; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(rows.keys[i]), 0u) << i / stride;
      ASSERT_EQ(std::bit_cast<uint32_t>(rows.values[i]), 0u) << i / stride;
    }
  }
}

TEST(KnownWrongLayoutTest, OffsetsOverflow32Bits) {
  const RowLayout layout = MakeRowLayout(/*rows=*/1 << 18, /*row_stride=*/8192, /*alignment=*/16);
  EXPECT_EQ(layout.Offset(0, (1 << 18) - 1), int64_t{2147475456});
  EXPECT_EQ(layout.Offset(1, 0), int64_t{2147483648});
  EXPECT_EQ(layout.Offset(3, 5), int64_t{6442491904});
  const RowLayout longer = MakeRowLayout(/*rows=*/1 << 20, /*row_stride=*/8192, /*alignment=*/16);
  EXPECT_EQ(longer.Offset(0, (1 << 20) - 1), int64_t{8589926400});
}

// A cache of more than 2^31 elements, of which only the pages that are touched exist.
TEST_P(KnownWrongSlotAnswerTest, OffsetsOverflow32BitsInALargeCache) {
  if (kPoisonOnAllocation) GTEST_SKIP() << "a debug build touches all memory that it allocates";
  if (GetParam().undo_rows > 0) GTEST_SKIP() << "a ring has no memory that large [W4]";
  const KvGeometry large = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 65536, .max_length = 32784};
  std::unique_ptr<KvCache> cache;
  try {
    cache = GetParam().make({.geometry = large, .sequences = 1, .shuffle_seed = std::nullopt});
  } catch (const std::bad_alloc&) {
    GTEST_SKIP() << "this machine cannot reserve 17 GB of address space";
  }
  Update(cache.get(), 0, {0}, 1);
  const auto slot = cache->TryReserveSlot(0, Range(32783, 32784));
  ASSERT_TRUE(slot);
  Fill(*cache, *slot, 0, Range(32783, 32784), 2);
  EXPECT_EQ(Bits(Read(*cache, 0).keys), Bits(Row(large, 0, 0, 1, Half::kKeys)));
  EXPECT_EQ(Bits(Read(*cache, 0).values), Bits(Row(large, 0, 0, 1, Half::kValues)));
  KvView view;
  cache->View(0, &view);
  const auto* first = reinterpret_cast<const float*>(view.segments.at(0).keys);
  if (GetParam().block_size == 0) {
    EXPECT_EQ(slot->keys.data() - first, int64_t{32783} * 65536);
  }
}

// Forwards all but one call: the shape of a decorator that was not told of the second half.
class ForgetsCommit final : public KvCache {
 public:
  explicit ForgetsCommit(std::unique_ptr<KvCache> inner) : inner_(std::move(inner)) {}
  const KvGeometry& geometry() const override { return inner_->geometry(); }
  std::string name() const override { return inner_->name(); }
  RowType key_type() const override { return inner_->key_type(); }
  RowType value_type() const override { return inner_->value_type(); }
  int32_t length(int32_t layer) const override { return inner_->length(layer); }
  int32_t current_length() const override { return inner_->current_length(); }
  void View(int32_t layer, KvView* view) const override { inner_->View(layer, view); }
  void Update(int32_t layer, std::span<const int32_t> positions, std::span<const float> keys,
              std::span<const float> values) override {
    inner_->Update(layer, positions, keys, values);
  }
  std::optional<KvSlot> TryReserveSlot(int32_t layer, std::span<const int32_t> positions) override {
    return inner_->TryReserveSlot(layer, positions);
  }
  void CommitSlot(int32_t, std::span<const int32_t>) override {}
  void Rollback(int32_t length) override { inner_->Rollback(length); }
  void Clear() override { inner_->Clear(); }
  std::unique_ptr<KvCache> Fork() override { return inner_->Fork(); }
  Digest StorageDigest() const override { return inner_->StorageDigest(); }
  void SaveState(StateWriter* writer) const override { inner_->SaveState(writer); }
  void LoadState(StateReader* reader) override { inner_->LoadState(reader); }

 private:
  std::unique_ptr<KvCache> inner_;
};

// Whether a direct write shows: what a cache and every wrapper of it must pass [C1].
bool DirectWriteShows(KvCache* cache) {
  if (!WriteDirect(cache, 1, {0}, 1)) return false;
  return cache->length(1) == 1 &&
         Bits(Read(*cache, 1).keys) == Bits(Row(cache->geometry(), 1, 0, 1, Half::kKeys));
}

TEST_P(KnownWrongSlotAnswerTest, WrapperForwardsReserveButNotCommit) {
  EXPECT_TRUE(DirectWriteShows(Make().get()));
  ForgetsCommit wrapper(Make());
  EXPECT_FALSE(DirectWriteShows(&wrapper));
}

TEST_P(KnownWrongSlotAnswerTest, FirstLayersCommitShowsUnwrittenRowsOfLaterLayers) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 4), 1);
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) model.Write(layer, Range(0, 4), 1);
  ASSERT_TRUE(WriteDirect(cache.get(), 0, {4}, 2));
  model.Write(0, Range(4, 5), 2);
  EXPECT_EQ(cache->length(1), 4);
  EXPECT_EQ(cache->length(2), 4);
  EXPECT_EQ(Difference(*cache, model), "");
}

}  // namespace
}  // namespace lockstep::contract
