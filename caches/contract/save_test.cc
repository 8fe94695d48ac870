// Clauses S1 and S2 of caches/CONTRACT.md over every cache. The file format itself is tested beside
// caches/cache_file.h.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "caches/cache_file.h"
#include "caches/contract/fixture.h"
#include "caches/storage_test_util.h"
#include "caches/temporary_folder.h"

namespace lockstep::contract {
namespace {

class SaveTest : public CacheTest {
 protected:
  // Layers of different lengths, with a gap, a rewrite and a rollback behind them.
  std::unique_ptr<KvCache> MakeUsed() const {
    auto cache = Make();
    storage_test::WriteAll(cache.get(), Range(0, 14), 1);
    cache->Rollback(7);
    storage_test::Write(cache.get(), 0, {7, 12, 2}, 2);
    storage_test::Write(cache.get(), 2, Range(7, 9), 2);
    return cache;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.File("saved.lskv");
};
INSTANTIATE_TEST_SUITE_P(Caches, SaveTest, testing::ValuesIn(EveryCache()), TestName);

class SaveSlotTest : public SaveTest {};
INSTANTIATE_TEST_SUITE_P(Caches, SaveSlotTest, testing::ValuesIn(SlotCaches()), TestName);

class SaveBlockTest : public SaveTest {};
INSTANTIATE_TEST_SUITE_P(Caches, SaveBlockTest, testing::ValuesIn(BlockCaches()), TestName);

TEST_P(SaveTest, S1_RestoredEqualsSaved) {
  const auto saved = MakeUsed();
  const Snapshot before = Observe(*saved);
  SaveCache(*saved, path_);
  EXPECT_EQ(Observe(*saved), before);

  const auto restored = Make();
  storage_test::WriteAll(restored.get(), Range(0, 20), 9);  // content that has to go
  RestoreCache(restored.get(), path_);
  const Snapshot after = Observe(*restored);
  EXPECT_EQ(after.lengths, before.lengths);
  EXPECT_EQ(after.row_bits, before.row_bits);
  EXPECT_EQ(after.hash, before.hash);
  EXPECT_EQ(after.storage, before.storage);

  // Both go on alike: into a gap, over old rows, and after a rollback.
  for (KvCache* cache : {saved.get(), restored.get()}) {
    storage_test::Write(cache, 1, {10, 3}, 4);
    cache->Rollback(6);
    storage_test::WriteAll(cache, {9}, 5);
  }
  EXPECT_EQ(DigestOfCache(*restored), DigestOfCache(*saved));
  EXPECT_EQ(restored->StorageDigest(), saved->StorageDigest());
}

TEST_P(SaveTest, S1_EmptyAndFullCachesComeBack) {
  for (int32_t length : {0, 21}) {
    const auto saved = Make(), restored = Make();
    UpdateAll(saved.get(), Range(0, length), 1);
    UpdateAll(restored.get(), Range(0, 5), 2);
    SaveCache(*saved, path_);
    RestoreCache(restored.get(), path_);
    EXPECT_EQ(restored->current_length(), length);
    EXPECT_EQ(DigestOfCache(*restored), DigestOfCache(*saved));
  }
}

TEST_P(SaveSlotTest, S1_RestoringCancelsReservations) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 3), 1);
  SaveCache(*cache, path_);
  ASSERT_TRUE(cache->TryReserveSlot(1, Range(3, 4)));
  RestoreCache(cache.get(), path_);
  EXPECT_THROW(cache->CommitSlot(1, Range(3, 4)), std::logic_error);
  EXPECT_EQ(cache->length(1), 3);
}

TEST_P(SaveBlockTest, S1_BlocksAreNotInTheFile) {
  const auto saved = MakeUsed();
  SaveCache(*saved, path_);
  for (const char* name : {"paged/1", "paged/3", "paged/16"}) {
    const auto other = ParseCacheSpec(name).make({.geometry = kGeometry});
    RestoreCache(other.get(), path_);
    EXPECT_EQ(DigestOfCache(*other), DigestOfCache(*saved));
    EXPECT_EQ(other->StorageDigest(), saved->StorageDigest());
  }
}

TEST_P(SaveTest, S2_DamageIsRefusedAndChangesNothing) {
  const auto saved = MakeUsed();
  SaveCache(*saved, path_);
  std::vector<char> bytes;
  {
    std::ifstream in(path_, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 5), 3);
  const Snapshot before = Observe(*cache);
  const auto expect_refused = [&](const std::vector<char>& damaged, size_t at) {
    std::ofstream(path_, std::ios::binary)
        .write(damaged.data(), static_cast<std::streamsize>(damaged.size()));
    EXPECT_THROW(RestoreCache(cache.get(), path_), Error) << at;
    EXPECT_EQ(Observe(*cache), before) << at;
  };
  for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 12) {
    std::vector<char> flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    expect_refused(flipped, at);
    expect_refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at)}, at);
  }
  expect_refused({bytes.begin(), bytes.end() - 1}, bytes.size() - 1);
}

TEST_P(SaveTest, S2_OtherGeometriesAreRefused) {
  const auto cache = Make();
  UpdateAll(cache.get(), Range(0, 5), 3);
  const Snapshot before = Observe(*cache);
  std::vector<KvGeometry> others(4, kGeometry);
  others[0].num_layers = 2;
  others[1].num_kv_heads = 1;
  others[2].head_dim = 64;
  others[3].max_length = 22;
  for (const KvGeometry& geometry : others) {
    SaveCache(*GetParam().make({.geometry = geometry}), path_);
    EXPECT_THROW(RestoreCache(cache.get(), path_), Error);
    EXPECT_EQ(Observe(*cache), before);
  }
}

TEST(SaveKindsTest, S2_OtherKindsTypesAndWindowsAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.File("saved.lskv");
  for (const CacheSpec& from : EveryCache()) {
    const auto saved = from.make({.geometry = kGeometry});
    UpdateAll(saved.get(), Range(0, 2), 1);
    SaveCache(*saved, path);
    for (const CacheSpec& to : EveryCache()) {
      const bool both_paged = from.block_size > 0 && to.block_size > 0;
      if (from.name == to.name || both_paged) continue;
      const auto cache = to.make({.geometry = kGeometry});
      UpdateAll(cache.get(), Range(0, 5), 3);
      const Digest before = DigestOfCache(*cache);
      EXPECT_THROW(RestoreCache(cache.get(), path), Error) << from.name << " into " << to.name;
      EXPECT_EQ(DigestOfCache(*cache), before);
    }
  }
}

TEST_P(SaveBlockTest, S2_TooFewBlocksChangeNothing) {
  const auto full = Make(/*sequences=*/1);
  UpdateAll(full.get(), Range(0, 21), 1);
  SaveCache(*full, path_);
  const auto cache = Make(/*sequences=*/1);
  UpdateAll(cache.get(), Range(0, 1), 2);
  const auto fork = cache->Fork();  // shares the block, so it does not come free
  const Snapshot before = Observe(*fork);
  EXPECT_THROW(RestoreCache(fork.get(), path_), PoolExhausted);
  EXPECT_EQ(Observe(*fork), before);
  cache->Clear();
  RestoreCache(fork.get(), path_);  // now there are exactly enough, its own block included
  EXPECT_EQ(DigestOfCache(*fork), DigestOfCache(*full));
}

}  // namespace
}  // namespace lockstep::contract
