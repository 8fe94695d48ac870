// What ModelCache predicts beyond the common contract, worked out by hand: exact windows [Q1, Q2],
// gating [R2, R3] and blocks.
#include "oracle/model_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "caches/codec.h"

namespace lockstep {
namespace {

constexpr int32_t kDim = 32;

ModelCacheOptions Windowed(int32_t window) {
  return {.geometry = {.num_layers = 1, .num_kv_heads = 1, .head_dim = kDim, .max_length = 32},
          .key_type = RowType::kQ8_0,
          .value_type = RowType::kQ4_0,
          .window = window,
          .refuses_host_slots = true};
}

std::vector<float> RowOf(int32_t position, float sign) {
  std::vector<float> row;
  for (int32_t i = 0; i < kDim; ++i) {
    row.push_back(sign * (1.0f + 0.017f * static_cast<float>(i * i % 37 + position)));
  }
  return row;
}

void Write(KvCache& cache, const std::vector<int32_t>& positions) {
  std::vector<float> keys, values;
  for (int32_t p : positions) {
    const auto key = RowOf(p, 1.0f), value = RowOf(p, -1.0f);
    keys.insert(keys.end(), key.begin(), key.end());
    values.insert(values.end(), value.begin(), value.end());
  }
  cache.Update(0, positions, keys, values);
}

std::vector<int32_t> Upto(int32_t count) {
  std::vector<int32_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

// One character a row: 'E' exact in K and V, 'q' dequantized in both.
std::string Picture(const KvCache& cache, int32_t query) {
  KvView view;
  if (query < 0) {
    cache.View(0, &view);
  } else {
    cache.ViewForQuery(0, query, &view);
  }
  const KvRows rows = DecodeRows(view, kDim);
  std::string picture;
  for (int32_t p = 0; p < view.length; ++p) {
    const auto matches = [&](const std::vector<float>& shown, const std::vector<float>& row) {
      return std::equal(row.begin(), row.end(), shown.begin() + p * kDim);
    };
    const auto decoded = [&](RowType type, const std::vector<float>& row) {
      std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, kDim)));
      std::vector<float> back(row.size());
      EncodeRow(type, row, stored);
      DecodeRow(type, stored, back);
      return back;
    };
    const auto key = RowOf(p, 1.0f), value = RowOf(p, -1.0f);
    const bool exact = matches(rows.keys, key) && matches(rows.values, value);
    const bool quantized = matches(rows.keys, decoded(RowType::kQ8_0, key)) &&
                           matches(rows.values, decoded(RowType::kQ4_0, value));
    picture += exact ? 'E' : quantized ? 'q' : '?';
  }
  return picture;
}

TEST(ModelCacheTest, WithoutAWindowEveryRowReadsDequantizedQ1) {
  ModelCache cache(Windowed(0));
  Write(cache, Upto(4));
  EXPECT_EQ(Picture(cache, -1), "qqqq");
  EXPECT_EQ(Picture(cache, 3), "qqqq");
  EXPECT_FALSE(cache.view_depends_on_query());
}

TEST(ModelCacheTest, TheLastRowsReadExactlyQ1) {
  ModelCache cache(Windowed(3));
  for (int32_t p = 0; p < 5; ++p) Write(cache, {p});
  EXPECT_EQ(Picture(cache, -1), "qqEEE");
  EXPECT_EQ(Picture(cache, 4), "qqEEE");
  EXPECT_TRUE(cache.view_depends_on_query());
}

TEST(ModelCacheTest, EachQueryOfAStepHasItsOwnWindowQ3) {
  ModelCache cache(Windowed(2));
  Write(cache, Upto(5));  // longer than the window
  EXPECT_EQ(Picture(cache, 0).substr(0, 1), "E");
  EXPECT_EQ(Picture(cache, 1).substr(0, 2), "EE");
  EXPECT_EQ(Picture(cache, 2).substr(0, 3), "qEE");
  EXPECT_EQ(Picture(cache, 3).substr(0, 4), "qqEE");
  EXPECT_EQ(Picture(cache, 4), "qqqEE");
}

TEST(ModelCacheTest, RolledBackRowsOutsideTheRingReadDequantizedQ2) {
  ModelCache cache(Windowed(3));
  for (int32_t p = 0; p < 6; ++p) Write(cache, {p});  // held: 3 4 5
  cache.Rollback(4);                                  // held: 3; 1 and 2 are inside the window
  EXPECT_EQ(Picture(cache, -1), "qqqE");
  Write(cache, {2});  // rewritten: held again
  EXPECT_EQ(Picture(cache, -1), "qqEE");
  Write(cache, {4});
  EXPECT_EQ(Picture(cache, -1), "qqEEE");
}

TEST(ModelCacheTest, RewritingAnOldRowTakesTheSlotOfARecentOne) {
  ModelCache cache(Windowed(3));
  for (int32_t p = 0; p < 6; ++p) Write(cache, {p});
  Write(cache, {1});  // slot 1 held 4
  EXPECT_EQ(Picture(cache, -1), "qqqEqE");
}

TEST(ModelCacheTest, HostSlotsAreRefusedAfterTheLayerCheckR1R3) {
  ModelCache cache(Windowed(0));
  EXPECT_FALSE(cache.TryReserveSlot(0, std::vector<int32_t>{0}));
  EXPECT_THROW(cache.TryReserveSlot(1, {}), std::out_of_range);
}

TEST(ModelCacheTest, ARunIsGrantedInsideABlockOnlyR2) {
  ModelCache cache({.geometry = {1, 1, 2, 12}, .block_size = 4});
  EXPECT_TRUE(cache.TryReserveSlot(0, std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_FALSE(cache.TryReserveSlot(0, std::vector<int32_t>{3, 4}));
  EXPECT_TRUE(cache.TryReserveSlot(0, std::vector<int32_t>{4, 5}));
  EXPECT_FALSE(cache.TryReserveSlot(0, std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(ModelCacheTest, BlocksAreCountedOverAllLayersAndReservationsB3) {
  ModelCache cache({.geometry = {2, 1, 2, 12}, .block_size = 4, .blocks_available = 2});
  const std::vector<float> row(2);
  EXPECT_EQ(cache.blocks_used(), 0);
  EXPECT_TRUE(cache.TryReserveSlot(0, std::vector<int32_t>{4}));
  EXPECT_EQ(cache.blocks_used(), 2);
  EXPECT_FALSE(cache.TryReserveSlot(1, std::vector<int32_t>{8}));
  EXPECT_THROW(cache.Update(1, std::vector<int32_t>{8}, row, row), PoolExhausted);
  EXPECT_TRUE(cache.TryReserveSlot(0, std::vector<int32_t>{3}));  // replaces the first
  EXPECT_EQ(cache.blocks_used(), 1);
  cache.Update(1, std::vector<int32_t>{7}, row, row);
  EXPECT_EQ(cache.blocks_used(), 2);
  cache.Rollback(4);
  EXPECT_EQ(cache.blocks_used(), 1);
  cache.Clear();
  EXPECT_EQ(cache.blocks_used(), 0);
}

TEST(ModelCacheTest, NamesItsKind) {
  const KvGeometry g{1, 1, 32, 4};
  EXPECT_EQ(ModelCache({.geometry = g}).name(), "model/f32");
  EXPECT_EQ(ModelCache({.geometry = g, .block_size = 16}).name(), "model/f32/b16");
  EXPECT_EQ(ModelCache(Windowed(4)).name(), "model/q8_0+q4_0/w4");
}

}  // namespace
}  // namespace lockstep
