// What allocates: nothing inside a step [M1], and where something does, a failed allocation leaves
// the cache as it was [M2]. This binary links failing_new.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/cache_file.h"
#include "caches/contract/fixture.h"
#include "caches/failing_new.h"
#include "caches/prefix_index.h"
#include "caches/temporary_folder.h"

namespace lockstep::contract {
namespace {

using failing_new::allocations;
using failing_new::failing_in;

class MemoryTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, MemoryTest, testing::ValuesIn(EveryCache()), TestName);

// Allocations that `act` makes.
template <typename Act>
int64_t Count(Act act) {
  const int64_t before = allocations;
  act();
  return allocations - before;
}

// Lets the first, second, ... allocation of `act` fail until it succeeds, and calls `check` after
// each failure. Returns how many failed.
template <typename Act, typename Check>
int FailEachAllocation(Act act, Check check) {
  for (int failures = 0;; ++failures) {
    failing_in = failures;
    try {
      act();
      failing_in = -1;
      return failures;
    } catch (const std::bad_alloc&) {
      failing_in = -1;
      check(failures);
    }
  }
}

TEST(MemoryCountTest, CountsEveryFormOfNew) {
  EXPECT_EQ(Count([] { std::vector<int> v(3); }), 1);
  EXPECT_EQ(Count([] {
              char* volatile memory = new char[3];  // volatile: else the pair is optimised away
              delete[] memory;
            }),
            1);
  EXPECT_EQ(Count([] { AlignedBuffer<float> buffer(3); }), 1);
  EXPECT_EQ(FailEachAllocation([] { std::vector<int> a(1), b(1); }, [](int) {}), 2);
}

TEST_P(MemoryTest, M1_NothingAllocatesInsideAStep) {
  const auto cache = Make();
  const std::vector<std::vector<int32_t>> inputs = {Range(0, 3),   {3},  {4}, {12, 2, 2, 9},
                                                    Range(13, 15), {20}, {5}};
  std::vector<std::vector<float>> keys, values;
  for (const auto& positions : inputs) {
    keys.push_back(Rows(kGeometry, 0, positions, 1, Half::kKeys));
    values.push_back(Rows(kGeometry, 0, positions, 1, Half::kValues));
  }
  KvView view;
  view.segments.reserve(2 * static_cast<size_t>(kGeometry.max_length));  // as after some steps
  const int64_t count = Count([&] {
    for (int round = 0; round < 2; ++round) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
          cache->TryReserveSlot(layer, inputs[i]);
          cache->Update(layer, inputs[i], keys[i], values[i]);
          if (cache->TryReserveSlot(layer, inputs[i])) cache->CommitSlot(layer, inputs[i]);
          cache->CommitSlot(layer, inputs[i]);
          cache->View(layer, &view);
          cache->ViewForQuery(layer, inputs[i].back(), &view);
        }
      }
      cache->Rollback(7);
    }
  });
  EXPECT_EQ(count, 0);
}

// The same with blocks that are shared, so that every write copies.
TEST_P(MemoryTest, M1_NothingAllocatesWhenWritesCopy) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 9), 1);
  const auto fork = cache->Fork();
  const std::vector<int32_t> at = {8}, next = {9};
  const auto keys = Rows(kGeometry, 0, at, 2, Half::kKeys);
  const int64_t count = Count([&] {
    fork->TryReserveSlot(0, next);
    fork->TryReserveSlot(1, at);
    fork->Update(2, at, keys, keys);
    fork->Update(1, next, keys, keys);
    fork->Rollback(4);
  });
  EXPECT_EQ(count, 0);
}

TEST_P(MemoryTest, M2_FailedForkChangesNothing) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 9), 1);
  const bool reserved = cache->TryReserveSlot(1, Range(9, 10)).has_value();
  const Snapshot before = Observe(*cache);
  std::unique_ptr<KvCache> fork;
  const int failures = FailEachAllocation(
      [&] { fork = cache->Fork(); }, [&](int at) { EXPECT_EQ(Observe(*cache), before) << at; });
  EXPECT_GT(failures, 2);
  EXPECT_EQ(DigestOfCache(*fork), before.hash);
  if (!reserved) return;

  // The reservation survives a fork that fails.
  ASSERT_TRUE(cache->TryReserveSlot(1, Range(9, 10)));
  failing_in = 0;
  EXPECT_THROW(cache->Fork(), std::bad_alloc);
  failing_in = -1;
  EXPECT_NO_THROW(cache->CommitSlot(1, Range(9, 10)));
}

TEST_P(MemoryTest, M2_ClearAndRollbackDoNotAllocate) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 21), 1);
  const auto fork = cache->Fork();
  const int64_t count = Count([&] {
    fork->Rollback(13);
    fork->Rollback(2);
    fork->Clear();
  });
  EXPECT_EQ(count, 0);
}

TEST_P(MemoryTest, M2_FailedConstructionLeavesNothingBehind) {
  std::unique_ptr<KvCache> cache;
  const int failures =
      FailEachAllocation([&] { cache = Make(); }, [](int) {});  // leaks show in ASan
  EXPECT_GT(failures, 2);
  UpdateAll(cache.get(), Range(0, 21), 1);
}

TEST_P(MemoryTest, M2_FailedRestoreChangesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.File("saved.lskv");
  const auto cache = Make(), saved = Make();
  UpdateAll(saved.get(), Range(0, 14), 2);
  SaveCache(*saved, path);
  UpdateAll(cache.get(), Range(0, 9), 1);
  const Snapshot before = Observe(*cache);
  const int failures =
      FailEachAllocation([&] { RestoreCache(cache.get(), path); },
                         [&](int at) { EXPECT_EQ(Observe(*cache), before) << at; });
  EXPECT_GT(failures, 0);
  EXPECT_EQ(DigestOfCache(*cache), DigestOfCache(*saved));
}

// A paged cache, and an index that knows all blocks of its pool.
struct Indexed {
  Indexed() {
    UpdateAll(cache.get(), Range(0, 16), 1);
    ids.resize(16, 7);
    index.Register({}, ids, *cache);
  }
  std::unique_ptr<KvCache> cache =
      ParseCacheSpec("paged/4").make({.geometry = kGeometry, .sequences = 1});
  std::vector<int32_t> ids;
  PrefixIndex index{*cache};
};

TEST(MemoryPrefixTest, P6_GivingABlockUpAllocatesNothing) {
  Indexed indexed;
  KvCache& cache = *indexed.cache;
  cache.Clear();
  EXPECT_EQ(Count([&] {
              for (int32_t position = 0; position < 20; ++position) {
                EXPECT_TRUE(WriteDirect(&cache, 0, {position}, 2));
              }
            }) - Count([&] {
              for (int32_t position = 0; position < 20; ++position) {
                EXPECT_TRUE(WriteDirect(&cache, 1, {position}, 2));
              }
            }),
            0);
  EXPECT_EQ(indexed.index.counters().evicted, 3);  // two of six blocks were free
}

TEST(MemoryPrefixTest, M2_FailedRegistrationKnowsWholeBlocksAlone) {
  Indexed indexed;
  KvCache& cache = *indexed.cache;
  const Digest before = DigestOfCache(cache);
  indexed.index.Clear();
  const auto register_all = [&] { indexed.index.Register({}, indexed.ids, cache); };
  const int failures = FailEachAllocation(register_all, [&](int failed) {
    const auto blocks = static_cast<int32_t>(indexed.index.blocks().size());
    EXPECT_LE(blocks, failed);
    EXPECT_EQ(DigestOfCache(cache), before);
    const std::optional<BlockCounts> books = BlockCountsOf(cache);
    EXPECT_EQ(std::ranges::count(books->references, 2), blocks) << failed;
    indexed.index.Clear();
  });
  EXPECT_GT(failures, 4);
  EXPECT_EQ(indexed.index.blocks().size(), 4u);
}

}  // namespace
}  // namespace lockstep::contract
