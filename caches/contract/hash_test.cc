// Clauses X1 and X2 of caches/CONTRACT.md.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "caches/contract/fixture.h"

namespace lockstep::contract {
namespace {

class HashTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, HashTest, testing::ValuesIn(EveryCache()), TestName);

class HashBlockTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, HashBlockTest, testing::ValuesIn(BlockCaches()), TestName);

const auto kStride = static_cast<size_t>(kGeometry.kv_stride());

// The serialisation written down byte by byte, not through the digest's own calls.
class Bytes {
 public:
  void U32(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes_.push_back(static_cast<std::byte>(value >> shift & 0xffu));
    }
  }
  void Floats(const std::vector<float>& values) {
    for (float value : values) U32(std::bit_cast<uint32_t>(value));
  }
  Digest Hash() const { return DigestOfBytes(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

TEST_P(HashTest, X1_HashesTheCanonicalSerialisation) {
  const auto cache = Make();
  Model model(kGeometry);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    const auto positions = Range(layer, 3 * layer + 4);  // with a gap from layer 1 on
    Update(cache.get(), layer, positions, 1);
    model.Write(layer, positions, 1);
  }
  Bytes bytes;
  for (int32_t dimension : {3, 3, 32}) bytes.U32(static_cast<uint32_t>(dimension));
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    const KvRows rows = model.rows(layer);
    bytes.U32(static_cast<uint32_t>(model.length(layer)));
    bytes.Floats(rows.keys);
    bytes.Floats(rows.values);
  }
  EXPECT_EQ(DigestOfCache(*cache), bytes.Hash());
}

TEST_P(HashTest, X1_EqualContentHashesEquallyWhateverTheStorage) {
  const auto cache = Make();
  const auto simple = ParseCacheSpec("simple").make({.geometry = kGeometry});
  EXPECT_EQ(DigestOfCache(*cache), DigestOfCache(*simple));
  for (int32_t end : {1, 4, 5, 16, 21}) {
    UpdateAll(cache.get(), Range(cache->current_length(), end), 1);
    UpdateAll(simple.get(), Range(simple->current_length(), end), 1);
    EXPECT_EQ(DigestOfCache(*cache), DigestOfCache(*simple)) << end;
  }
}

TEST_P(HashTest, X1_LeavesMaxLengthOut) {
  KvGeometry longer = kGeometry;
  longer.max_length = 64;
  const auto a = Make(), b = GetParam().make({.geometry = longer});
  UpdateAll(a.get(), Range(0, 5), 1);
  UpdateAll(b.get(), Range(0, 5), 1);
  EXPECT_EQ(DigestOfCache(*a), DigestOfCache(*b));
}

TEST_P(HashTest, X1_SeesEveryDifference) {
  std::vector<Digest> digests;  // of caches that differ in one thing each
  const auto add = [&](const KvCache& cache) {
    const Digest digest = DigestOfCache(cache);
    for (const Digest& other : digests) EXPECT_NE(digest, other) << digests.size();
    digests.push_back(digest);
  };
  const auto base = [&] {
    auto cache = Make();
    UpdateAll(cache.get(), Range(0, 5), 1);
    return cache;
  };
  add(*base());
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    auto cache = base();
    Update(cache.get(), layer, {2}, 2);  // another row
    add(*cache);
    cache = base();
    Update(cache.get(), layer, {5}, 1);  // one more row
    add(*cache);
    cache = base();
    cache->Rollback(4);
    for (int32_t l = 0; l < kGeometry.num_layers; ++l) {
      if (l != layer) Update(cache.get(), l, {4}, 1);  // one row fewer
    }
    add(*cache);
  }
  auto swapped = Make();  // keys and values exchanged
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    swapped->Update(layer, Range(0, 5), Rows(kGeometry, layer, Range(0, 5), 1, Half::kValues),
                    Rows(kGeometry, layer, Range(0, 5), 1, Half::kKeys));
  }
  add(*swapped);
}

TEST_P(HashTest, X1_ZeroRowsAreNotNoRows) {
  const auto cache = Make();
  const Digest empty = DigestOfCache(*cache);
  const std::vector<float> zeros(kStride, 0.0f);
  cache->Update(0, Range(0, 1), zeros, zeros);
  EXPECT_NE(DigestOfCache(*cache), empty);
}

TEST(HashCanonicalTest, X1_EveryNanIsOneNanAndZeroKeepsItsSign) {
  const auto hash = [](float value) {
    const auto cache = ParseCacheSpec("simple").make({.geometry = kGeometry});
    std::vector<float> row(kStride, 1.0f);
    row[7] = value;
    cache->Update(0, Range(0, 1), row, row);
    return DigestOfCache(*cache);
  };
  const Digest nan = hash(std::bit_cast<float>(0x7fc00000u));
  EXPECT_EQ(hash(std::bit_cast<float>(0xffc00000u)), nan);
  EXPECT_EQ(hash(std::bit_cast<float>(0x7f800001u)), nan);
  EXPECT_EQ(hash(std::bit_cast<float>(0xffffffffu)), nan);
  EXPECT_NE(hash(std::numeric_limits<float>::infinity()), nan);
  EXPECT_NE(hash(0.0f), hash(-0.0f));
}

TEST_P(HashTest, X2_StorageHashCoversVisibleBytesOnly) {
  const auto a = Make(), b = Make();
  for (const auto& [cache, stale] : {std::pair{a.get(), 8}, std::pair{b.get(), 9}}) {
    UpdateAll(cache, Range(0, 12), stale);
    cache->Clear();
    for (int32_t position = 0; position < 10; ++position) UpdateAll(cache, {position}, 1);
  }
  EXPECT_EQ(a->StorageDigest(), b->StorageDigest());
}

TEST_P(HashTest, X2_StorageHashSeesEveryRow) {
  const auto base = Make();
  UpdateAll(base.get(), Range(0, 10), 1);
  const Digest digest = base->StorageDigest();
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    for (int32_t position : {0, 4, 9}) {
      for (bool keys : {false, true}) {
        const auto cache = Make();
        UpdateAll(cache.get(), Range(0, 10), 1);
        cache->Update(layer, Range(position, position + 1),
                      Row(kGeometry, layer, position, keys ? 2 : 1, Half::kKeys),
                      Row(kGeometry, layer, position, keys ? 1 : 2, Half::kValues));
        EXPECT_NE(cache->StorageDigest(), digest) << layer << " " << position << " " << keys;
      }
    }
  }
  base->Rollback(9);
  EXPECT_NE(base->StorageDigest(), digest);
}

// Which blocks hold the rows, and how many fit into one, is not content.
TEST_P(HashBlockTest, X2_StorageHashDoesNotSeeTheBlocks) {
  const auto shuffled = GetParam().make({.geometry = kGeometry, .shuffle_seed = 99});
  const auto ordered = GetParam().make({.geometry = kGeometry, .shuffle_seed = std::nullopt});
  const auto other = ParseCacheSpec("paged/3").make({.geometry = kGeometry});
  for (KvCache* cache : {shuffled.get(), ordered.get(), other.get()}) {
    UpdateAll(cache, Range(0, 13), 1);
  }
  EXPECT_EQ(shuffled->StorageDigest(), ordered->StorageDigest());
  EXPECT_EQ(shuffled->StorageDigest(), other->StorageDigest());
}

}  // namespace
}  // namespace lockstep::contract
