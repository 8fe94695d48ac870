// The quantized cache but for its exact window (quantized/window_test.cc): clause Q4 and what the
// others ask of it in particular.
#include "caches/quantized_kv_cache.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "caches/codec.h"
#include "caches/storage_test_util.h"

namespace lockstep {
namespace {

using storage_test::Range;
using storage_test::Read;
using storage_test::Rows;
using storage_test::SameBits;
using storage_test::SnapshotOf;
using storage_test::Write;
using storage_test::WriteAll;

constexpr KvGeometry kGeometry = {
    .num_layers = 3, .num_kv_heads = 3, .head_dim = 32, .max_length = 10};
constexpr RowType kTypes[] = {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0,
                              RowType::kQ4_0};

QuantizedKvOptions OptionsOf(RowType keys, RowType values, int32_t window = 0) {
  return {.geometry = kGeometry, .key_type = keys, .value_type = values, .window = window};
}

TEST(QuantizedKvCacheTest, Q4HeadDimIsAMultipleOf32WhereEitherHalfHasBlocks) {
  for (RowType keys : kTypes) {
    for (RowType values : kTypes) {
      QuantizedKvOptions options = OptionsOf(keys, values);
      for (int32_t head_dim : {32, 64, 96, 128}) {
        options.geometry.head_dim = head_dim;
        EXPECT_NO_THROW(QuantizedKvCache{options}) << head_dim;
      }
      options.geometry.num_kv_heads = 32;  // the row would have whole blocks all the same
      const bool whole_blocks = HeadDimMultiple(keys, values) == 32;
      for (int32_t head_dim : {1, 8, 31, 33, 80, 100}) {
        options.geometry.head_dim = head_dim;
        if (whole_blocks) {
          EXPECT_THROW(QuantizedKvCache{options}, std::invalid_argument) << head_dim;
        } else {
          EXPECT_NO_THROW(QuantizedKvCache{options}) << head_dim;
        }
      }
    }
  }
}

// Rows of an odd number of elements, encoded ones of 2 bytes each and exact ones beside them.
TEST(QuantizedKvCacheTest, Q1RowsOfAnySizeAreKeptAsF16) {
  QuantizedKvOptions options = OptionsOf(RowType::kF16, RowType::kF16, 2);
  options.geometry.head_dim = 5;
  QuantizedKvCache cache(options);
  WriteAll(&cache, Range(0, 7), 1);
  for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
    const KvRows rows = Read(cache, layer);
    for (bool is_key : {true, false}) {
      std::vector<float> want = Rows(options.geometry, layer, Range(0, 7), 1, is_key);
      for (size_t i = 0; i < 5 * 15; ++i) want[i] = F32FromF16(F16FromF32(want[i]));
      EXPECT_TRUE(SameBits(is_key ? rows.keys : rows.values, want)) << "layer " << layer;
    }
  }
}

TEST(QuantizedKvCacheTest, OptionsThatMeanNothingAreRefused) {
  const auto refused = [](auto change) {
    QuantizedKvOptions options = OptionsOf(RowType::kQ8_0, RowType::kQ8_0);
    change(&options);
    EXPECT_THROW(QuantizedKvCache{options}, std::invalid_argument);
  };
  refused([](auto* o) { o->key_type = static_cast<RowType>(5); });
  refused([](auto* o) { o->value_type = static_cast<RowType>(9); });
  refused([](auto* o) { o->window = -1; });
  refused([](auto* o) { o->max_step_rows = -1; });
  refused([](auto* o) { o->geometry.max_length = 0; });
}

TEST(QuantizedKvCacheTest, SaysWhatItIs) {
  QuantizedKvCache cache(OptionsOf(RowType::kQ8_0, RowType::kQ4_0, 4));
  EXPECT_EQ(cache.name(), "quantized/q8_0+q4_0/w4");
  EXPECT_EQ(cache.key_type(), RowType::kQ8_0);
  EXPECT_EQ(cache.value_type(), RowType::kQ4_0);
  EXPECT_TRUE(cache.view_depends_on_query());
  QuantizedKvCache plain(OptionsOf(RowType::kF32, RowType::kQ8_0));
  EXPECT_EQ(plain.name(), "quantized/f32+q8_0/w0");
  EXPECT_FALSE(plain.view_depends_on_query());
}

// Q1 with W = 0, Q4: rows read back as the codec alone makes them, K and V each in its own type.
TEST(QuantizedKvCacheTest, Q1Q4RowsReadAsTheCodecMakesThem) {
  for (RowType keys : kTypes) {
    for (RowType values : kTypes) {
      QuantizedKvCache cache(OptionsOf(keys, values));
      const std::vector<int32_t> positions = {4, 2, 0, 1, 3};
      WriteAll(&cache, positions, 1);
      for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
        const KvRows rows = Read(cache, layer);
        const auto expect = [&](RowType type, bool is_key, const std::vector<float>& got) {
          const auto exact = Rows(kGeometry, layer, Range(0, 5), 1, is_key);
          std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, 5 * 96)));
          std::vector<float> decoded(exact.size());
          EncodeRow(type, exact, stored);
          DecodeRow(type, stored, decoded);
          EXPECT_TRUE(SameBits(got, decoded)) << cache.name() << " layer " << layer;
        };
        expect(keys, true, rows.keys);
        expect(values, false, rows.values);
      }
    }
  }
}

// V2: a gap reads +0.0f though its memory was poisoned, or held rows that a rollback took away.
// Four bits of zero bytes would read -0.0f or worse: a row of zeros is not a row of zero bytes.
TEST(QuantizedKvCacheTest, V2GapRowsReadPositiveZero) {
  for (RowType type : kTypes) {
    for (int32_t window : {0, 3}) {
      QuantizedKvCache cache(OptionsOf(type, type, window));
      WriteAll(&cache, Range(0, 8), 1);
      cache.Rollback(2);
      Write(&cache, 1, {6, 4}, 2);
      const KvRows rows = Read(cache, 1);
      ASSERT_EQ(rows.keys.size(), 7u * 96);
      for (int32_t p : {2, 3, 5}) {
        for (size_t i = static_cast<size_t>(p) * 96; i < static_cast<size_t>(p + 1) * 96; ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(rows.keys[i]), 0u) << cache.name() << " row " << p;
          ASSERT_EQ(std::bit_cast<uint32_t>(rows.values[i]), 0u) << cache.name() << " row " << p;
        }
      }
    }
  }
}

// R1, R3, C2: nothing can be reserved, so nothing but published rows can be committed.
TEST(QuantizedKvCacheTest, R3ReservationsAreRefusedAndC2CommitsFindNone) {
  QuantizedKvCache cache(OptionsOf(RowType::kQ8_0, RowType::kQ8_0, 2));
  WriteAll(&cache, Range(0, 3), 1);
  const auto before = SnapshotOf(cache);
  EXPECT_FALSE(cache.TryReserveSlot(0, Range(3, 4)));
  EXPECT_FALSE(cache.TryReserveSlot(2, {}));
  EXPECT_THROW(cache.TryReserveSlot(3, {}), std::out_of_range);
  EXPECT_THROW(cache.TryReserveSlot(-1, Range(3, 4)), std::out_of_range);
  EXPECT_NO_THROW(cache.CommitSlot(0, Range(0, 3)));
  EXPECT_NO_THROW(cache.CommitSlot(0, {}));
  EXPECT_THROW(cache.CommitSlot(0, Range(3, 4)), std::logic_error);
  EXPECT_THROW(cache.CommitSlot(3, {}), std::out_of_range);
  EXPECT_EQ(SnapshotOf(cache), before);
}

// B4: neither sees the other's writes, the exact rows included.
TEST(QuantizedKvCacheTest, B4ForksGoTheirOwnWays) {
  QuantizedKvCache cache(OptionsOf(RowType::kQ4_0, RowType::kQ8_0, 3));
  WriteAll(&cache, Range(0, 5), 1);
  const auto fork = cache.Fork();
  const auto before = SnapshotOf(cache);
  EXPECT_EQ(SnapshotOf(*fork), before);
  WriteAll(fork.get(), {4, 5, 6}, 2);
  EXPECT_EQ(SnapshotOf(cache), before);
  const auto forked = SnapshotOf(*fork);
  EXPECT_NE(forked, before);
  cache.Rollback(1);
  WriteAll(&cache, {1}, 3);
  EXPECT_EQ(SnapshotOf(*fork), forked);
}

// Layers begin on a cache line; exact rows do so always, as a row has whole blocks of 128 bytes.
TEST(QuantizedKvCacheTest, RowsAreAligned) {
  QuantizedKvCache cache(OptionsOf(RowType::kQ4_0, RowType::kQ8_0, 4));
  const auto aligned = [](const std::byte* rows) {
    return reinterpret_cast<uintptr_t>(rows) % kCacheAlignment == 0;
  };
  for (const auto& step : {Range(0, 9), Range(9, 10)}) {  // staged rows, then settled ones too
    WriteAll(&cache, step, 1);
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      KvView view;
      cache.View(layer, &view);
      ASSERT_GE(view.segments.size(), 2u);
      for (const KvSegment& segment : view.segments) {
        EXPECT_TRUE(aligned(segment.keys)) << "layer " << layer << " row " << segment.first;
        EXPECT_TRUE(aligned(segment.values)) << "layer " << layer << " row " << segment.first;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
