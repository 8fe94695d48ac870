// Clauses Q1 to Q5 of caches/CONTRACT.md, over the quantized caches of the registry, with rows that
// no block format keeps exactly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "caches/codec.h"
#include "caches/contract/fixture.h"
#include "caches/quantized_kv_cache.h"
#include "caches/storage_test_util.h"

namespace lockstep::contract {
namespace {

using storage_test::Write;
using storage_test::WriteAll;

class QuantizedTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, QuantizedTest, testing::ValuesIn(QuantizedCaches()), TestName);

class WindowTest : public CacheTest {};
INSTANTIATE_TEST_SUITE_P(Caches, WindowTest, testing::ValuesIn(WindowCaches()), TestName);

const auto kStride = static_cast<size_t>(kGeometry.kv_stride());

std::vector<float> ExactRow(int32_t layer, int32_t position, int32_t version, bool keys) {
  return storage_test::Rows(kGeometry, layer, Range(position, position + 1), version, keys);
}

std::vector<float> Dequantized(RowType type, const std::vector<float>& row) {
  std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, kGeometry.kv_stride())));
  EncodeRow(type, row, stored);
  std::vector<float> decoded(row.size());
  DecodeRow(type, stored, decoded);
  return decoded;
}

// Which positions a query reads exactly, as letters by position: 'E' exactly, 'D' dequantized, '0'
// zero, '?' none of them. `versions` are those written last, 0 for a gap row.
std::string HowRead(const KvCache& cache, int32_t layer, std::optional<int32_t> query,
                    const std::vector<int32_t>& versions) {
  KvView view;
  if (query) {
    cache.ViewForQuery(layer, *query, &view);
  } else {
    cache.View(layer, &view);
  }
  const KvRows rows = DecodeRows(view, kGeometry.kv_stride());
  const RowType window_type = ParseCacheSpec(cache.name()).window_type;
  const auto one = [&](const std::vector<float>& all, RowType type, int32_t position, bool keys) {
    const auto got = Bits(std::span(all).subspan(static_cast<size_t>(position) * kStride, kStride));
    const int32_t version = versions[static_cast<size_t>(position)];
    if (version == 0) return got == Bits(std::vector<float>(kStride)) ? '0' : '?';
    const auto exact = ExactRow(layer, position, version, keys);
    if (got == Bits(Dequantized(window_type, exact))) return 'E';
    return got == Bits(Dequantized(type, exact)) ? 'D' : '?';
  };
  std::string how;
  for (int32_t position = 0; position < view.length; ++position) {
    const char k = one(rows.keys, cache.key_type(), position, true);
    const char v = one(rows.values, cache.value_type(), position, false);
    if (k == '?' || v == '?') {
      how += '?';
    } else if (cache.key_type() == RowType::kF32) {
      how += v;  // F32 rows are exact either way: only the other half tells
    } else if (cache.value_type() == RowType::kF32 || k == v) {
      how += k;
    } else {
      how += '?';
    }
  }
  return how;
}

// What a query at the last position reads after a plain sequence of `length` rows.
std::string Recent(int32_t length, int32_t window) {
  const int32_t exact = std::min(length, window);
  return std::string(static_cast<size_t>(length - exact), 'D') +
         std::string(static_cast<size_t>(exact), 'E');
}

TEST_P(QuantizedTest, Q1_QueryReadsItsOwnWindowExactly) {
  const auto cache = Make();
  const std::vector<int32_t> versions(21, 1);
  for (int32_t position = 0; position < 12; ++position) {
    Write(cache.get(), 1, {position}, 1);
    EXPECT_EQ(HowRead(*cache, 1, {}, versions), Recent(position + 1, GetParam().window));
    EXPECT_EQ(HowRead(*cache, 1, position, versions), Recent(position + 1, GetParam().window));
  }
}

// Each query of a step reads its own window exactly, though the step is longer than the window.
TEST_P(WindowTest, Q1_StepLongerThanTheWindowIsHeldWhole) {
  const int32_t window = GetParam().window;
  for (int32_t rows : {window, window + 1, 3 * window + 2}) {
    const auto cache = Make();
    const std::vector<int32_t> versions(21, 1);
    Write(cache.get(), 1, Range(0, 3), 1);
    Write(cache.get(), 1, Range(3, 3 + rows), 1);
    for (int32_t query = 3; query < 3 + rows; ++query) {
      std::string how = HowRead(*cache, 1, query, versions);
      how.resize(static_cast<size_t>(query + 1));  // causal: rows past the query are masked
      EXPECT_EQ(how, Recent(query + 1, window)) << rows << " rows, query " << query;
    }
  }
}

TEST_P(QuantizedTest, Q1_GapRowsReadZeroAlsoInsideTheWindow) {
  const auto cache = Make();
  std::vector<int32_t> versions(21, 0);
  for (int32_t position : {1, 3, 8}) {
    Write(cache.get(), 0, {position}, 1);
    versions[static_cast<size_t>(position)] = 1;
    const std::string how = HowRead(*cache, 0, {}, versions);
    EXPECT_EQ(how.find('?'), how.npos) << how;
    EXPECT_EQ(how.back(), GetParam().window > 0 ? 'E' : 'D');
  }
}

TEST_P(WindowTest, Q2_RowsThatFellOutReadDequantizedUntilRewritten) {
  const int32_t window = GetParam().window;
  const auto cache = Make();
  std::vector<int32_t> versions(21, 1);
  for (int32_t position = 0; position < 12; ++position) Write(cache.get(), 1, {position}, 1);
  cache->Rollback(9);  // rows 9 to 11 took the slots of the rows before 12 - window
  const int32_t held = std::max(0, window - 3);
  EXPECT_EQ(HowRead(*cache, 1, {}, versions), std::string(static_cast<size_t>(9 - held), 'D') +
                                                  std::string(static_cast<size_t>(held), 'E'));
  Write(cache.get(), 1, {8}, 2);
  versions[8] = 2;
  EXPECT_EQ(HowRead(*cache, 1, {}, versions).back(), 'E');
}

TEST_P(QuantizedTest, Q2_RejectedRowsAreNeverSeenAgain) {
  for (int32_t keep = 0; keep <= 12; ++keep) {
    const auto cache = Make();
    std::vector<int32_t> versions(21, 1);
    WriteAll(cache.get(), Range(0, 12), 1);
    cache->Rollback(keep);
    for (int32_t position = keep; position < 15; ++position) {
      WriteAll(cache.get(), {position}, 2);
      versions[static_cast<size_t>(position)] = 2;
      for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
        const std::string how = HowRead(*cache, layer, position, versions);
        EXPECT_EQ(how.find('?'), how.npos) << how << " kept " << keep << " layer " << layer;
      }
    }
  }
}

// Cuts of one sequence into steps: as one, row by row, and at random.
std::vector<std::vector<int32_t>> Cuts(int32_t rows) {
  std::vector<std::vector<int32_t>> cuts = {{rows},
                                            std::vector<int32_t>(static_cast<size_t>(rows), 1)};
  Random random(3);
  for (int i = 0; i < 6; ++i) {
    auto& cut = cuts.emplace_back();
    for (int32_t left = rows; left > 0; left -= cut.back()) {
      cut.push_back(random.Between(1, std::min(left, 7)));
    }
  }
  return cuts;
}

TEST_P(QuantizedTest, Q3_NothingDependsOnHowTheRowsWereCut) {
  struct Outcome {
    Digest hash;
    Digest storage;
    std::vector<Digest> queries;  // what each query read in its own step, causally
    bool operator==(const Outcome&) const = default;
  };
  std::optional<Outcome> first;
  for (const auto& cut : Cuts(17)) {
    const auto cache = Make();
    Outcome outcome;
    int32_t begin = 0;
    for (int32_t rows : cut) {
      WriteAll(cache.get(), Range(begin, begin + rows), 1);
      for (int32_t query = begin; query < begin + rows; ++query) {
        KvView view;
        cache->ViewForQuery(1, query, &view);
        const KvRows read = DecodeRows(view, kGeometry.kv_stride());
        const size_t seen = static_cast<size_t>(query + 1) * kStride;
        outcome.queries.push_back(DigestOfFloats(std::span(read.keys).first(seen)));
        outcome.queries.push_back(DigestOfFloats(std::span(read.values).first(seen)));
      }
      begin += rows;
    }
    outcome.hash = DigestOfCache(*cache);
    outcome.storage = cache->StorageDigest();
    if (!first) first = outcome;
    EXPECT_TRUE(outcome == *first) << testing::PrintToString(cut);
  }
}

TEST_P(QuantizedTest, Q4_StoredRowsAreTheCodecsBytes) {
  // With a window the view shows exact rows; the stored ones are those of the same cache without.
  const auto cache =
      ParseCacheSpec(fmt::format("quantized/{}+{}/w0", RowTypeName(GetParam().key_type),
                                 RowTypeName(GetParam().value_type)))
          .make({.geometry = kGeometry});
  WriteAll(cache.get(), Range(0, 5), 1);
  KvView view;
  cache->View(2, &view);
  ASSERT_EQ(view.segments.size(), 1u);
  const KvSegment& s = view.segments[0];
  EXPECT_EQ(s.key_type, GetParam().key_type);
  EXPECT_EQ(s.value_type, GetParam().value_type);
  for (int32_t position = 0; position < 5; ++position) {
    for (bool keys : {true, false}) {
      const RowType type = keys ? s.key_type : s.value_type;
      const auto bytes = static_cast<size_t>(RowBytes(type, kGeometry.kv_stride()));
      std::vector<std::byte> want(bytes);
      EncodeRow(type, ExactRow(2, position, 1, keys), want);
      const std::byte* row = (keys ? s.keys : s.values) + static_cast<size_t>(position) * bytes;
      EXPECT_TRUE(std::equal(want.begin(), want.end(), row)) << position << " keys " << keys;
    }
  }
}

TEST(QuantizedOptionsTest, Q4_BlocksHaveGgmlsSizes) {
  EXPECT_EQ(RowBytes(RowType::kQ8_0, 32), 34);
  EXPECT_EQ(RowBytes(RowType::kQ4_0, 32), 18);
  EXPECT_EQ(RowBytes(RowType::kQ8_0, 96), 102);  // not rounded up to a multiple of 4
  EXPECT_EQ(RowBytes(RowType::kQ4_0, 96), 54);
}

TEST_P(QuantizedTest, Q4_HeadDimMustBeWholeBlocks) {
  const auto is_block = [](RowType type) {
    return type == RowType::kQ8_0 || type == RowType::kQ4_0;
  };
  const bool has_blocks = is_block(GetParam().key_type) || is_block(GetParam().value_type);
  for (int32_t head_dim : {1, 16, 31, 33, 80, 100}) {
    KvGeometry geometry = kGeometry;
    geometry.num_kv_heads = 4;  // 4 * 80 is a multiple of 32 and still head 1 starts inside a block
    geometry.head_dim = head_dim;
    if (has_blocks) {
      EXPECT_THROW(GetParam().make({.geometry = geometry}), std::invalid_argument) << head_dim;
    } else {
      EXPECT_NO_THROW(GetParam().make({.geometry = geometry})) << head_dim;
    }
  }
  for (int32_t head_dim : {32, 64, 96, 128}) {
    KvGeometry geometry = kGeometry;
    geometry.head_dim = head_dim;
    EXPECT_NO_THROW(GetParam().make({.geometry = geometry})) << head_dim;
  }
}

// Decoding layer by layer: what one layer evicts is no business of the others.
TEST_P(QuantizedTest, Q5_LayersKeepTheirOwnWindow) {
  const int32_t window = GetParam().window;
  const auto cache = Make();
  const std::vector<int32_t> versions(21, 1);
  for (int32_t position = 0; position < 10; ++position) {
    for (int32_t layer = 0; layer < kGeometry.num_layers; ++layer) {
      Write(cache.get(), layer, {position}, 1);
      for (int32_t other = 0; other < kGeometry.num_layers; ++other) {
        const int32_t length = position + (other <= layer ? 1 : 0);
        EXPECT_EQ(HowRead(*cache, other, {}, versions), Recent(length, window))
            << "layer " << other << " after layer " << layer << " position " << position;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::contract
