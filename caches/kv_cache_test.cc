// What all caches share: stored row sizes, layouts, decoding of views, and the two hashes [X1, X2].
#include "caches/kv_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <vector>

#include "caches/codec.h"
#include "caches/kv_checks.h"
#include "caches/kv_layout.h"
#include "caches/quantized_kv_cache.h"
#include "caches/simple_kv_cache.h"
#include "caches/storage_test_util.h"

namespace lockstep {
namespace {

using storage_test::Range;
using storage_test::Rows;
using storage_test::Write;

constexpr KvGeometry kGeometry = {
    .num_layers = 2, .num_kv_heads = 1, .head_dim = 32, .max_length = 9};

TEST(RowTypeTest, NamesAndStoredBytes) {
  EXPECT_EQ(RowTypeName(RowType::kF32), "f32");
  EXPECT_EQ(RowTypeName(RowType::kF16), "f16");
  EXPECT_EQ(RowTypeName(RowType::kBf16), "bf16");
  EXPECT_EQ(RowTypeName(RowType::kQ8_0), "q8_0");
  EXPECT_EQ(RowTypeName(RowType::kQ4_0), "q4_0");
  EXPECT_EQ(RowBytes(RowType::kF32, 96), 384);
  EXPECT_EQ(RowBytes(RowType::kF16, 96), 192);
  EXPECT_EQ(RowBytes(RowType::kBf16, 96), 192);
  EXPECT_EQ(RowBytes(RowType::kQ8_0, 96), 102);
  EXPECT_EQ(RowBytes(RowType::kQ4_0, 96), 54);
  EXPECT_EQ(RowBytes(RowType::kF32, int64_t{1} << 40), int64_t{1} << 42);
}

// U7: the products of real long contexts, which a 32-bit offset wraps.
TEST(RowLayoutTest, U7OffsetsAre64Bit) {
  const RowLayout layout = MakeRowLayout(/*rows=*/3000, /*row_stride=*/1039680, /*alignment=*/16);
  EXPECT_EQ(layout.Offset(0, 2066), 2147978880);
  EXPECT_EQ(layout.Offset(1, 2066), int64_t{3000} * 1039680 + 2147978880);
  EXPECT_EQ(MakeRowLayout(300000, 8192, 16).Offset(0, 262144), int64_t{1} << 31);
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(MakeRowLayout(kMax, 1024, 16).Offset(3, kMax - 1),
            int64_t{kMax} * 1024 * 3 + (int64_t{kMax} - 1) * 1024);
}

TEST(RowLayoutTest, LayersBeginAligned) {
  EXPECT_EQ(MakeRowLayout(7, 15, 16).layer_stride, 112);
  EXPECT_EQ(MakeRowLayout(8, 16, 16).layer_stride, 128);
  EXPECT_EQ(MakeRowLayout(1, 1, 64).layer_stride, 64);
}

TEST(GeometryTest, U7SizesThatOverflowAreRefused) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_THROW(CheckGeometry({kMax, kMax, kMax, kMax}), std::invalid_argument);
  EXPECT_THROW(SimpleKvCache({1 << 10, 1 << 15, 1 << 15, 1 << 30}), std::invalid_argument);
  for (const KvGeometry& g : {KvGeometry{0, 1, 1, 1}, KvGeometry{1, 0, 1, 1},
                              KvGeometry{1, 1, -1, 1}, KvGeometry{1, 1, 1, 0}}) {
    EXPECT_THROW(SimpleKvCache{g}, std::invalid_argument);
  }
}

TEST(GeometryTest, U7TheLargestSizeThatFitsIsTaken) {
  // 2^61 floats are 2^63 bytes, one more than the largest offset.
  EXPECT_THROW(CheckGeometry({1, 1 << 16, 1 << 15, 1 << 30}), std::invalid_argument);
  EXPECT_NO_THROW(CheckGeometry({1, 1 << 16, 1 << 15, (1 << 30) - 1}));
  EXPECT_NO_THROW(CheckGeometry({(1 << 30) - 1, 1 << 16, 1 << 15, 1}));
}

// X1, written out: L, H, D, then for each layer the length, K rows, V rows as floats.
TEST(CacheDigestTest, X1IsTheDocumentedSerialisation) {
  SimpleKvCache cache(kGeometry);
  Write(&cache, 0, Range(0, 3), 1);
  Write(&cache, 1, Range(0, 2), 1);
  DigestBuilder expected;
  for (uint32_t value : {2u, 1u, 32u}) expected.AddU32(value);
  for (int32_t layer : {0, 1}) {
    const std::vector<int32_t> positions = Range(0, 3 - layer);
    expected.AddU32(static_cast<uint32_t>(positions.size()));
    expected.AddFloats(Rows(kGeometry, layer, positions, 1, true));
    expected.AddFloats(Rows(kGeometry, layer, positions, 1, false));
  }
  EXPECT_EQ(DigestOfCache(cache), expected.Finish());

  const LayerDigest layer = DigestOfLayer(cache, 1);
  EXPECT_EQ(layer.length, 2);
  EXPECT_EQ(layer.keys, DigestOfFloats(Rows(kGeometry, 1, Range(0, 2), 1, true)));
  EXPECT_EQ(layer.values, DigestOfFloats(Rows(kGeometry, 1, Range(0, 2), 1, false)));
}

TEST(CacheDigestTest, X1LeavesMaxLengthOutAndEverythingElseIn) {
  KvGeometry longer = kGeometry;
  longer.max_length = 20;
  SimpleKvCache a(kGeometry), b(longer), swapped(kGeometry), shape({2, 2, 16, 9});
  Write(&a, 0, {0}, 1);
  Write(&b, 0, {0}, 1);
  EXPECT_EQ(DigestOfCache(a), DigestOfCache(b));

  const std::vector<int32_t> at = {0};
  const auto keys = Rows(kGeometry, 0, at, 1, true);
  const auto values = Rows(kGeometry, 0, at, 1, false);
  swapped.Update(0, at, values, keys);
  EXPECT_NE(DigestOfCache(a), DigestOfCache(swapped));
  shape.Update(0, at, keys, values);
  EXPECT_NE(DigestOfCache(a), DigestOfCache(shape));
  Write(&b, 1, {0}, 1);
  EXPECT_NE(DigestOfCache(a), DigestOfCache(b));
}

// X1: a NaN counts as one value in the cache hash; X2: the storage hash sees its bits.
TEST(CacheDigestTest, X1FoldsNansX2DoesNot) {
  SimpleKvCache a(kGeometry), b(kGeometry);
  std::vector<float> row(32, 1.0f);
  const std::vector<int32_t> at = {0};
  row[5] = std::bit_cast<float>(0x7fc00000u);
  a.Update(0, at, row, row);
  row[5] = std::bit_cast<float>(0xffc00123u);
  b.Update(0, at, row, row);
  EXPECT_EQ(DigestOfCache(a), DigestOfCache(b));
  EXPECT_NE(a.StorageDigest(), b.StorageDigest());
}

// X2, written out, for raw F32 rows and for encoded ones with a window that is not part of it.
TEST(CacheDigestTest, X2IsOfTheRawStoredBytes) {
  SimpleKvCache simple(kGeometry);
  QuantizedKvCache quantized({.geometry = kGeometry,
                              .key_type = RowType::kQ4_0,
                              .value_type = RowType::kQ8_0,
                              .window = 2});
  for (KvCache* cache : {static_cast<KvCache*>(&simple), static_cast<KvCache*>(&quantized)}) {
    Write(cache, 1, Range(0, 4), 1);
    cache->Rollback(3);
    DigestBuilder expected;
    for (uint32_t value : {2u, 1u, 32u, 0u, 3u}) expected.AddU32(value);  // layer 0 is empty
    for (bool keys : {true, false}) {
      const RowType type = keys ? cache->key_type() : cache->value_type();
      const auto rows = Rows(kGeometry, 1, Range(0, 3), 1, keys);
      std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, 3 * 32)));
      EncodeRow(type, rows, stored);
      expected.AddBytes(stored);
    }
    EXPECT_EQ(cache->StorageDigest(), expected.Finish()) << cache->name();
  }
}

TEST(DecodeRowsDeathTest, ViewsWithHolesAreBugs) {
  const std::array<float, 8> rows{};
  const auto* bytes = std::as_bytes(std::span(rows)).data();
  const KvSegment one = {.first = 0, .count = 1, .keys = bytes, .values = bytes};
  KvSegment third = one;
  third.first = 2;
  EXPECT_DEATH(DecodeRows({.length = 3, .segments = {one, third}}, 4), "after position 1");
  EXPECT_DEATH(DecodeRows({.length = 2, .segments = {one}}, 4), "end at 1 of length 2");
  EXPECT_DEATH(DecodeRows({.length = 0, .segments = {one}}, 4), "reach 1 of length 0");
}

}  // namespace
}  // namespace lockstep
