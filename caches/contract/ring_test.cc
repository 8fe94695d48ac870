// Clauses W1 to W5 of caches/CONTRACT.md: layers that look back no further than their window, in
// memory that is used again and again.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "caches/cache_file.h"
#include "caches/contract/fixture.h"
#include "caches/memory_watch.h"
#include "caches/random.h"
#include "caches/ring_kv_cache.h"

namespace lockstep::contract {
namespace {

// Windows beside none, the smallest ring, steps longer than the window, a ring of the whole length;
// rows of two bytes, and of two beside four.
constexpr const char* kRings[] = {"ring/w6-0+3",          "ring/w1+1",
                                  "ring/w2-5+4",          "ring/w9-1-0+2",
                                  "ring/f16+bf16/w6-0+3", "ring/bf16+f32/w2-5+4"};

class RingTest : public CacheTest {
 protected:
  int32_t undo() const { return GetParam().undo_rows; }
  int32_t WindowOf(int32_t layer) const {
    return GetParam().windows[static_cast<size_t>(layer) % GetParam().windows.size()];
  }
  // A cache of these rows that keeps all.
  std::unique_ptr<KvCache> Full() const {
    const CacheSpec& spec = GetParam();
    const std::string name = spec.grants_host_slots
                                 ? "simple"
                                 : fmt::format("quantized/{}+{}/w0", RowTypeName(spec.key_type),
                                               RowTypeName(spec.value_type));
    return ParseCacheSpec(name).make({.geometry = kGeometry});
  }
  // What is forgotten of a layer that was `length` long and never rolled back.
  int32_t FirstOf(int32_t layer, int32_t length) const {
    return WindowOf(layer) == 0 ? 0 : std::max(0, length - WindowOf(layer) - undo());
  }
  // Rows [0, length), a row a step.
  std::unique_ptr<KvCache> Grown(int32_t length) const {
    auto cache = Make();
    for (int32_t p = 0; p < length; ++p) UpdateAll(cache.get(), {p}, 1);
    return cache;
  }
};
INSTANTIATE_TEST_SUITE_P(Caches, RingTest, testing::ValuesIn([] {
                           std::vector<CacheSpec> specs;
                           for (const char* name : kRings) specs.push_back(ParseCacheSpec(name));
                           return specs;
                         }()),
                         TestName);

// Rows [first, length) of the view are those of the full cache; what the view does not show, it
// does not say.
void ExpectRowsOf(const KvCache& full, const KvCache& cache, int32_t layer) {
  const KvRows want = Read(full, layer), got = Read(cache, layer);
  EXPECT_EQ(got.first, cache.first_position(layer));
  const auto skipped =
      static_cast<std::ptrdiff_t>(int64_t{got.first} * full.geometry().kv_stride());
  EXPECT_EQ(Bits(got.keys), Bits({want.keys.begin() + skipped, want.keys.end()})) << layer;
  EXPECT_EQ(Bits(got.values), Bits({want.values.begin() + skipped, want.values.end()})) << layer;
}

TEST_P(RingTest, W1_AViewShowsTheRowsThatAreNotForgotten) {
  const auto cache = Make();
  for (int32_t p = 0; p < kGeometry.max_length; ++p) {
    UpdateAll(cache.get(), {p}, 1);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      EXPECT_EQ(cache->attention_window(layer), WindowOf(layer));
      EXPECT_EQ(cache->first_position(layer), FirstOf(layer, p + 1)) << layer << " at " << p;
      KvView view;
      cache->View(layer, &view);
      EXPECT_EQ(view.first(), FirstOf(layer, p + 1));
      EXPECT_EQ(view.length, p + 1);
      EXPECT_LE(view.segments.size(), 2u);
    }
  }
  for (int32_t layer : {-1, kGeometry.num_layers}) {
    EXPECT_THROW(cache->attention_window(layer), std::out_of_range);
    EXPECT_THROW(cache->first_position(layer), std::out_of_range);
  }
}

// From every length to every other: allowed exactly where each longer layer still has the window of
// the query that is then the last.
TEST_P(RingTest, W2_RollbackStopsWhereRowsAreForgotten) {
  for (int32_t length = 1; length <= kGeometry.max_length; ++length) {
    for (int32_t target = 0; target < length; ++target) {
      const auto cache = Grown(length);
      bool possible = true;
      for (int32_t layer = 0; layer < kGeometry.num_layers && target > 0; ++layer) {
        const int32_t first = FirstOf(layer, length);
        possible = possible && (first == 0 || target - WindowOf(layer) >= first);
      }
      EXPECT_EQ(CanRollback(*cache, target), possible) << length << " to " << target;
      if (length - target <= undo()) {
        EXPECT_TRUE(possible) << length << " to " << target;
      }
      if (possible) {
        EXPECT_NO_THROW(cache->Rollback(target)) << length << " to " << target;
        EXPECT_EQ(cache->current_length(), target);
        continue;
      }
      const Snapshot before = Observe(*cache);
      EXPECT_THROW(cache->Rollback(target), std::out_of_range) << length << " to " << target;
      EXPECT_EQ(Observe(*cache), before);
    }
  }
}

TEST_P(RingTest, W2_ForgottenRowsStayForgottenUntilNothingIsLeft) {
  const auto cache = Grown(kGeometry.max_length);
  cache->Rollback(kGeometry.max_length - undo());
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    EXPECT_EQ(cache->first_position(layer), FirstOf(layer, kGeometry.max_length)) << layer;
  }
  cache->Rollback(0);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    EXPECT_EQ(cache->first_position(layer), 0);
  }
  UpdateAll(cache.get(), {0}, 2);
  const auto fresh = Make();
  UpdateAll(fresh.get(), {0}, 2);
  EXPECT_EQ(Observe(*cache), Observe(*fresh));
}

TEST_P(RingTest, W2_QueriesWhoseWindowIsForgottenAreRefused) {
  const auto cache = Grown(kGeometry.max_length);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    const int32_t first = cache->first_position(layer);
    for (int32_t query = 0; query < kGeometry.max_length; ++query) {
      KvView view;
      const bool whole = first == 0 || query - WindowOf(layer) + 1 >= first;
      if (whole) {
        EXPECT_NO_THROW(cache->ViewForQuery(layer, query, &view)) << layer << " at " << query;
        EXPECT_EQ(view.first(), first);
      } else {
        EXPECT_THROW(cache->ViewForQuery(layer, query, &view), std::out_of_range)
            << layer << " at " << query;
      }
    }
  }
}

// Each by itself, and whatever was open stays open.
TEST_P(RingTest, W2_StepsThatCouldNotBeUndoneAreRefused) {
  const int32_t length = kGeometry.max_length - undo() - 1;
  const auto cache = Grown(length);
  const auto open = cache->TryReserveSlot(0, std::vector<int32_t>{length - 1});
  const Snapshot before = Observe(*cache);
  EXPECT_THROW(Update(cache.get(), 0, Range(length, length + undo() + 1), 2),
               std::invalid_argument);
  EXPECT_FALSE(cache->TryReserveSlot(0, Range(length, length + undo() + 1)));
  // Two rows, the second of which makes the layer forget what undoing the first would need.
  const int32_t last = kGeometry.max_length - 1;
  const int32_t low = last - undo();
  if (FirstOf(0, last + 1) > 0) {
    const std::vector<int32_t> far = {low, last};
    if (undo() > 1) {
      EXPECT_THROW(Update(cache.get(), 0, far, 2), std::out_of_range);
    }
    EXPECT_FALSE(cache->TryReserveSlot(0, std::vector<int32_t>{last}));
  }
  const int32_t first = cache->first_position(0);
  for (int32_t p = 0; first > 0 && p < first + WindowOf(0); ++p) {
    EXPECT_THROW(Update(cache.get(), 0, {p}, 2), std::out_of_range) << p;
    EXPECT_FALSE(cache->TryReserveSlot(0, std::vector<int32_t>{p})) << p;
  }
  EXPECT_EQ(Observe(*cache), before);
  if (!open) return;
  EXPECT_NO_THROW(cache->CommitSlot(0, std::vector<int32_t>{length - 1}));
}

// Random steps, direct and by update, gaps, overwrites and rollbacks: whatever a query may read has
// the bits of the cache that keeps all.
TEST_P(RingTest, W3_EqualsTheFullCacheInsideEveryWindow) {
  Random random(0x7269);
  int64_t refused = 0, rolled_back = 0, direct = 0;
  for (int round = 0; round < 40; ++round) {
    const auto cache = Make();
    const auto full = Full();
    for (int step = 0; step < 60; ++step) {
      const int32_t length = cache->current_length();
      if (random.Below(5) == 0) {
        const int32_t target = std::max(0, length - random.Between(0, 2 * undo()));
        if (!CanRollback(*cache, target)) continue;
        cache->Rollback(target);
        full->Rollback(target);
        ++rolled_back;
      } else {
        const int32_t at = std::max(0, length + random.Between(-2, 1));
        const int32_t end = std::min(at + random.Between(1, undo()), kGeometry.max_length);
        for (int32_t layer = 0; layer < kGeometry.num_layers && at < end; ++layer) {
          if (random.Below(2) == 0 && WriteDirect(cache.get(), layer, Range(at, end), step)) {
            ++direct;
          } else {
            try {
              Update(cache.get(), layer, Range(at, end), step);
            } catch (const std::out_of_range&) {  // refused [W2]
              ++refused;
              continue;
            }
          }
          Update(full.get(), layer, Range(at, end), step);
        }
      }
      if (length >= kGeometry.max_length - 2 && random.Below(4) == 0) {
        cache->Clear();
        full->Clear();
      }
      for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
        ExpectRowsOf(*full, *cache, layer);
      }
    }
  }
  EXPECT_GT(rolled_back, 50);
  EXPECT_GT(direct, GetParam().grants_host_slots ? 50 : -1);
  EXPECT_GT(refused, 0);
}

// A saved cache goes on as it was, forgets what it forgot, and a fork does.
TEST_P(RingTest, W3_ForksAndFilesForgetTheSame) {
  const auto cache = Grown(kGeometry.max_length - 1);
  cache->Rollback(kGeometry.max_length - 1 - undo());
  StateWriter writer;
  cache->SaveState(&writer);
  const std::vector<std::byte> file = writer.Finish();
  const auto restored = Grown(3);
  StateReader reader(file, "saved");
  restored->LoadState(&reader);
  const auto fork = cache->Fork();
  for (KvCache* other : {restored.get(), fork.get()}) {
    EXPECT_EQ(Observe(*other), Observe(*cache));
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      EXPECT_EQ(other->first_position(layer), cache->first_position(layer));
    }
  }
  for (const char* name : {"ring/w6-0+2", "ring/w7-0+3", "ring/w1+2", "ring/w9-1-1+2",
                           "ring/w6-0+3", "ring/f16+f16/w6-0+3", "ring/f32+bf16/w6-0+3"}) {
    if (name == GetParam().name) continue;
    const auto other = ParseCacheSpec(name).make({.geometry = kGeometry});
    StateReader again(file, "saved");
    EXPECT_THROW(other->LoadState(&again), Error) << name;
    EXPECT_EQ(other->current_length(), 0);
  }
}

// Rows of memory, keys and values, over all layers.
int64_t RowsOfMemory(const RingKvOptions& options) {
  MemoryWatch watch({});
  const RingKvCache cache(options);
  int64_t bytes = 0;
  for (const WatchedMemory& memory : watch.live()) bytes += static_cast<int64_t>(memory.bytes);
  const int64_t stride = options.geometry.kv_stride();
  return bytes / (RowBytes(options.key_type, stride) + RowBytes(options.value_type, stride));
}

TEST(RingMemoryTest, W4_MemoryIsTheWindowAndTwoSteps) {
  KvGeometry geometry = {.num_layers = 3, .num_kv_heads = 2, .head_dim = 8, .max_length = 1 << 30};
  EXPECT_EQ(RowsOfMemory({geometry, {100, 7, 1000}, 5}), 110 + 17 + 1010);
  const RowType f16 = RowType::kF16, bf16 = RowType::kBf16;
  EXPECT_EQ(RowsOfMemory({geometry, {100, 7, 1000}, 5, f16, bf16}), 110 + 17 + 1010);
  EXPECT_EQ(RowsOfMemory({geometry, {100, 7, 1000}, 5, RowType::kF32, f16}), 110 + 17 + 1010);
  geometry.max_length = 50;
  EXPECT_EQ(RowsOfMemory({geometry, {100, 7, 0}, 5}), 50 + 17 + 50);
  // And it is enough: at the end of a billion positions too.
  geometry.max_length = 1 << 30;
  RingKvCache cache({geometry, {4, 9, 4}, 2});
  const int32_t end = geometry.max_length;
  for (int32_t p = end - 30; p < end; ++p) UpdateAll(&cache, {p}, 1);
  for (int32_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(cache.length(layer), end);
    EXPECT_EQ(cache.first_position(layer), end - cache.attention_window(layer) - 2);
    EXPECT_EQ(RingRows(cache, layer), cache.attention_window(layer) + 4);
    const KvRows rows = Read(cache, layer);
    EXPECT_EQ(Bits(rows.keys), Bits(Rows(geometry, layer, Range(rows.first, end), 1, Half::kKeys)));
  }
}

// Every run from every length: granted exactly where the memory is in one piece, at most a step
// behind the length, and what it makes the layer forget is not needed to undo it.
TEST_P(RingTest, W5_GrantsRunsThatDoNotComeRound) {
  int64_t granted = 0, refused = 0;
  for (int32_t length = 0; length < kGeometry.max_length; ++length) {
    const auto cache = Grown(length);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      const int32_t window = WindowOf(layer);
      const int32_t ring = RingRows(*cache, layer);
      EXPECT_EQ(ring, window == 0 ? 0 : std::min(window + 2 * undo(), kGeometry.max_length));
      for (int32_t p = 0; p < kGeometry.max_length; ++p) {
        for (int32_t count = 1; count <= std::min(undo() + 1, kGeometry.max_length - p); ++count) {
          const int32_t end = p + count;
          const int32_t first = FirstOf(layer, std::max(length, end));
          bool fits = GetParam().grants_host_slots && count <= undo();
          if (window > 0) {
            fits = fits && p / ring == (end - 1) / ring && end <= length + undo() &&
                   (first == 0 || p >= first + window);
          }
          const bool is = cache->TryReserveSlot(layer, Range(p, end)).has_value();
          EXPECT_EQ(is, fits) << "layer " << layer << " of " << length << ", [" << p << ", " << end
                              << ")";
          (is ? granted : refused) += 1;
        }
      }
    }
  }
  EXPECT_EQ(granted > 0, GetParam().grants_host_slots);
  EXPECT_GT(refused, 0);
}

// The slot takes the place of no row that a view shows, whatever is written there.
TEST_P(RingTest, W5_AnOpenSlotHidesNoRow) {
  for (int32_t length = 0; length < kGeometry.max_length; ++length) {
    const auto cache = Grown(length);
    const Snapshot before = Observe(*cache);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      const int32_t end = std::min(length + undo(), kGeometry.max_length);
      for (int32_t p = length; p < end; ++p) {
        const auto slot = cache->TryReserveSlot(layer, Range(p, end));
        if (!slot) continue;
        std::ranges::fill(slot->keys, 7.0f);
        std::ranges::fill(slot->values, 7.0f);
        EXPECT_EQ(Observe(*cache), before) << "layer " << layer << " of " << length << " at " << p;
      }
    }
  }
}

TEST(RingOptionsTest, W1_WindowsThatMeanNothingAreRefused) {
  const KvGeometry geometry = {.num_layers = 2, .num_kv_heads = 1, .head_dim = 4, .max_length = 9};
  EXPECT_THROW(RingKvCache({geometry, {4}, 2}), std::invalid_argument);
  EXPECT_THROW(RingKvCache({geometry, {4, -1}, 2}), std::invalid_argument);
  EXPECT_THROW(RingKvCache({geometry, {4, 0}, 0}), std::invalid_argument);
  EXPECT_EQ(RingKvCache({geometry, {4, 0}, 2}).name(), "ring/w4-0+2");
  EXPECT_EQ(RingKvCache({geometry, {4, 0}, 2, RowType::kF16, RowType::kF32}).name(),
            "ring/f16+f32/w4-0+2");
  for (const RowType type : {RowType::kQ8_0, RowType::kQ4_0}) {
    EXPECT_THROW(RingKvCache({geometry, {4, 0}, 2, type}), std::invalid_argument);
    EXPECT_THROW(RingKvCache({geometry, {4, 0}, 2, RowType::kF16, type}), std::invalid_argument);
  }
  EXPECT_EQ(RingKvCache({geometry, {0, 0}, 2}).max_step_rows(), 9);
  EXPECT_EQ(RingKvCache({geometry, {INT32_MAX, 0}, INT32_MAX}).name(),
            "ring/w2147483647-0+2147483647");
}

}  // namespace
}  // namespace lockstep::contract
