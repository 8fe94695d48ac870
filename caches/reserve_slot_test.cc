// The sixteen cases of dotLLM's reserve-slot tests (kkokosa/dotLLM #278, #310), restated by what
// they check: seven on the simple cache, six on the paged one, one on the quantized one, and two on
// the range of the layer. The clauses behind them are tested over every cache in caches/contract/.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "caches/contract/fixture.h"
#include "caches/paged_kv_cache.h"
#include "caches/quantized_kv_cache.h"
#include "caches/simple_kv_cache.h"
#include "caches/storage_test_util.h"

namespace lockstep {
namespace {

using storage_test::Range;

constexpr KvGeometry kShape = {.num_layers = 2, .num_kv_heads = 4, .head_dim = 8, .max_length = 16};
const size_t kRow = 32;  // elements

std::unique_ptr<PagedKvCache> MakePaged(int32_t block_size) {
  return std::make_unique<PagedKvCache>(
      PagedKvCacheOptions{.geometry = kShape, .block_size = block_size, .pool = nullptr});
}

// One step through the direct path at every layer.
void WriteAllDirect(KvCache* cache, const std::vector<int32_t>& positions, int32_t version) {
  for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
    const auto slot = cache->TryReserveSlot(layer, positions);
    ASSERT_TRUE(slot);
    std::ranges::copy(storage_test::Rows(kShape, layer, positions, version, true),
                      slot->keys.begin());
    std::ranges::copy(storage_test::Rows(kShape, layer, positions, version, false),
                      slot->values.begin());
    cache->CommitSlot(layer, positions);
  }
}

// Both caches hold the same bits, and these are the rows that were given.
void ExpectSameRows(const KvCache& direct, const KvCache& legacy) {
  EXPECT_EQ(direct.current_length(), legacy.current_length());
  for (int32_t layer = 0; layer < kShape.num_layers; ++layer) {
    const KvRows a = storage_test::Read(direct, layer), b = storage_test::Read(legacy, layer);
    EXPECT_FALSE(a.keys.empty());
    EXPECT_TRUE(storage_test::SameBits(a.keys, b.keys)) << layer;
    EXPECT_TRUE(storage_test::SameBits(a.values, b.values)) << layer;
  }
  EXPECT_EQ(contract::Observe(direct), contract::Observe(legacy));
}

// ---- Simple: seven cases -----------------------------------------------------------------

TEST(ReferenceSlotTest, Simple01_ContiguousRunIsGranted) {
  SimpleKvCache cache(kShape);
  const auto slot = cache.TryReserveSlot(0, Range(0, 3));
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot->keys.size(), 3 * kRow);
  EXPECT_EQ(slot->values.size(), 3 * kRow);
}

TEST(ReferenceSlotTest, Simple02_NonContiguousRunIsRefused) {
  SimpleKvCache cache(kShape);
  EXPECT_FALSE(cache.TryReserveSlot(0, std::vector<int32_t>{0, 2, 3}));
}

TEST(ReferenceSlotTest, Simple03_RunPastTheEndIsRefused) {
  SimpleKvCache cache(kShape);
  EXPECT_FALSE(cache.TryReserveSlot(0, Range(15, 18)));
  EXPECT_TRUE(cache.TryReserveSlot(0, Range(13, 16)));
}

TEST(ReferenceSlotTest, Simple04_EmptyRunIsRefused) {
  SimpleKvCache cache(kShape);
  EXPECT_FALSE(cache.TryReserveSlot(0, {}));
}

TEST(ReferenceSlotTest, Simple05_CommitAdvancesTheLength) {
  SimpleKvCache cache(kShape);
  ASSERT_TRUE(cache.TryReserveSlot(0, Range(0, 3)));
  EXPECT_EQ(cache.current_length(), 0);
  cache.CommitSlot(0, Range(0, 3));
  EXPECT_EQ(cache.current_length(), 3);
}

TEST(ReferenceSlotTest, Simple06_PrefillIsBitExactWithUpdate) {
  SimpleKvCache direct(kShape), legacy(kShape);
  WriteAllDirect(&direct, Range(0, 6), 1);
  storage_test::WriteAll(&legacy, Range(0, 6), 1);
  ExpectSameRows(direct, legacy);
}

TEST(ReferenceSlotTest, Simple07_DecodeIsBitExactWithUpdate) {
  SimpleKvCache direct(kShape), legacy(kShape);
  for (int32_t step = 0; step < 8; ++step) {
    WriteAllDirect(&direct, {step}, step);
    storage_test::WriteAll(&legacy, {step}, step);
    ExpectSameRows(direct, legacy);
  }
}

// ---- Paged: six cases --------------------------------------------------------------------

TEST(ReferenceSlotTest, Paged08_RunInsideOneBlockIsGranted) {
  const auto cache = MakePaged(4);
  const auto slot = cache->TryReserveSlot(0, Range(0, 3));
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot->keys.size(), 3 * kRow);
  EXPECT_EQ(slot->values.size(), 3 * kRow);
}

TEST(ReferenceSlotTest, Paged09_RunOverABlockBoundaryIsRefused) {
  const auto cache = MakePaged(4);
  EXPECT_FALSE(cache->TryReserveSlot(0, Range(3, 6)));
  EXPECT_EQ(cache->pool().used_blocks(), 0);
}

TEST(ReferenceSlotTest, Paged10_NonContiguousRunIsRefused) {
  const auto cache = MakePaged(4);
  EXPECT_FALSE(cache->TryReserveSlot(0, std::vector<int32_t>{0, 2}));
}

TEST(ReferenceSlotTest, Paged11_EachSinglePositionCanBeReserved) {
  const auto cache = MakePaged(4);
  for (int32_t position = 0; position < kShape.max_length; ++position) {
    const auto slot = cache->TryReserveSlot(0, Range(position, position + 1));
    ASSERT_TRUE(slot) << position;
    EXPECT_EQ(slot->keys.size(), kRow);
    EXPECT_EQ(slot->values.size(), kRow);
  }
}

TEST(ReferenceSlotTest, Paged12_DecodeIsBitExactWithUpdate) {
  const auto direct = MakePaged(4), legacy = MakePaged(4);
  for (int32_t step = 0; step < 10; ++step) {
    WriteAllDirect(direct.get(), {step}, step);
    storage_test::WriteAll(legacy.get(), {step}, step);
    ExpectSameRows(*direct, *legacy);
  }
}

TEST(ReferenceSlotTest, Paged13_SingleBlockPrefillIsBitExactWithUpdate) {
  const auto direct = MakePaged(8), legacy = MakePaged(8);
  WriteAllDirect(direct.get(), Range(0, 5), 1);
  storage_test::WriteAll(legacy.get(), Range(0, 5), 1);
  ExpectSameRows(*direct, *legacy);
}

// ---- Quantized: one case -----------------------------------------------------------------

TEST(ReferenceSlotTest, Quantized14_RefusedThroughTheInterface) {
  KvGeometry shape = kShape;
  shape.head_dim = 32;
  const std::unique_ptr<KvCache> cache =
      std::make_unique<QuantizedKvCache>(QuantizedKvOptions{.geometry = shape, .window = 4});
  EXPECT_FALSE(cache->TryReserveSlot(0, Range(0, 1)));
  EXPECT_FALSE(cache->TryReserveSlot(1, Range(0, 3)));
  EXPECT_EQ(cache->current_length(), 0);
}

// ---- The range of the layer: two cases ----------------------------------------------------

// TryReserveSlot and CommitSlot throw for a layer that does not exist, before anything is taken.
void ExpectBadLayersThrow(KvCache* cache) {
  const auto before = contract::Observe(*cache);
  for (int32_t layer : {-1, kShape.num_layers}) {
    EXPECT_THROW(cache->TryReserveSlot(layer, Range(0, 3)), std::out_of_range);
    EXPECT_THROW(cache->CommitSlot(layer, Range(0, 3)), std::out_of_range);
    EXPECT_EQ(contract::Observe(*cache), before);
  }
}

TEST(ReferenceSlotTest, Layer15_SimpleThrowsOutOfRange) {
  SimpleKvCache cache(kShape);
  ExpectBadLayersThrow(&cache);
}

TEST(ReferenceSlotTest, Layer16_PagedThrowsOutOfRangeBeforeBlocksAreTaken) {
  const auto cache = MakePaged(4);
  ExpectBadLayersThrow(cache.get());
  EXPECT_EQ(cache->pool().used_blocks(), 0);
}

}  // namespace
}  // namespace lockstep
