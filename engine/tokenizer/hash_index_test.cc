#include "engine/tokenizer/hash_index.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "caches/random.h"

namespace lockstep {
namespace {

std::optional<uint32_t> FindKey(const HashIndex& index, const std::vector<uint64_t>& keys,
                                uint64_t hash, uint64_t key) {
  return index.Find(hash, [&](uint32_t i) { return keys[i] == key; });
}

TEST(HashIndex, AnEmptyOneFindsNothing) {
  const HashIndex index;
  EXPECT_EQ(index.Find(0, [](uint32_t) { return true; }), std::nullopt);
  EXPECT_EQ(index.Find(~uint64_t{0}, [](uint32_t) { return true; }), std::nullopt);
}

// Few distinct hashes, also such that only the tag or only the home slot differs.
TEST(HashIndex, FindsByKeyWhenHashesCollide) {
  for (const size_t capacity : {1u, 2u, 3u, 5u, 100u, 171u}) {
    Random random(capacity);
    HashIndex index(capacity);
    std::vector<uint64_t> keys;
    std::map<uint64_t, uint64_t> hashes;  // by key
    for (size_t i = 0; i < capacity; ++i) {
      const uint64_t key = random.Next();
      const uint64_t hash = (uint64_t{random.Below(3)} << 33) | random.Below(3);
      EXPECT_EQ(FindKey(index, keys, hash, key), std::nullopt);
      index.Insert(hash, static_cast<uint32_t>(i));
      keys.push_back(key);
      hashes[key] = hash;
    }
    for (size_t i = 0; i < capacity; ++i) {
      EXPECT_EQ(FindKey(index, keys, hashes[keys[i]], keys[i]), i);
      EXPECT_EQ(FindKey(index, keys, hashes[keys[i]], keys[i] + 1), std::nullopt);
    }
  }
}

TEST(HashIndexDeathTest, RefusesMoreThanItHasRoomFor) {
  HashIndex index(1);
  index.Insert(0, 0);
  EXPECT_DEATH(index.Insert(1, 1), "slots");
}

}  // namespace
}  // namespace lockstep
