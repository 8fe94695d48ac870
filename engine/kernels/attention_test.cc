// attention against a plain reference in the words of engine/ARITHMETIC.md, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "caches/digest.h"
#include "caches/kv_cache.h"
#include "engine/kernels.h"
#include "engine/kernels/test_attention.h"
#include "engine/kernels/test_inputs.h"
#include "engine/math.h"

namespace lockstep {
namespace {

using kernels_test::MakeRows;
using kernels_test::RandomValues;
using kernels_test::Reference;
using kernels_test::Rows;

constexpr float kCanary = -0x1.abcdp+100f;

class AttentionTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& kernels() const { return *GetParam(); }
};

std::vector<float> Attend(const KernelTable& kernels, const Rows& rows, const KvView& view,
                          const std::vector<float>& q, int32_t visible) {
  const auto needed = static_cast<size_t>(AttentionScratch(rows.shape, visible));
  AlignedBuffer<float> scratch(static_cast<int64_t>(needed) + 1);
  scratch.data()[needed] = kCanary;
  std::vector<float> out(q.size() + 1, kCanary);
  const AttentionQueries queries = {
      .count = 1, .q = q.data(), .out = out.data(), .visible = &visible};
  kernels.attention(rows.shape, queries, view, 0, rows.shape.num_heads, scratch.data());
  EXPECT_EQ(scratch.data()[needed], kCanary) << "scratch written past its end";
  EXPECT_EQ(out.back(), kCanary) << "out written past its end";
  out.pop_back();
  return out;
}

void ExpectSameBits(const std::vector<float>& expected, const std::vector<float>& actual,
                    const std::string& where) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(CanonicalBits(expected[i]), CanonicalBits(actual[i]))
        << where << ", element " << i << ": expected " << expected[i] << ", got " << actual[i];
  }
}

// The same rows cut at random, each piece copied to memory of its own so that nothing outside a
// piece can be read unnoticed.
struct Pieces {
  KvView view;
  std::vector<std::unique_ptr<std::byte[]>> memory;
};

Pieces CutAtRandom(const Rows& rows, int32_t longest, Random* random) {
  Pieces pieces;
  pieces.view.length = rows.length;
  for (int32_t first = 0; first < rows.length;) {
    const int32_t count = std::min(rows.length - first, random->Between(1, longest));
    KvSegment segment = rows.Segment(first, count);
    const auto copy = [&](const std::byte* from, int64_t bytes) {
      pieces.memory.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
      std::copy(from, from + bytes, pieces.memory.back().get());
      return pieces.memory.back().get();
    };
    segment.keys = copy(segment.keys, count * RowBytes(rows.key_type, rows.stride()));
    segment.values = copy(segment.values, count * RowBytes(rows.value_type, rows.stride()));
    pieces.view.segments.push_back(segment);
    first += count;
  }
  return pieces;
}

TEST_P(AttentionTest, EqualsThePlainReferenceAtEveryBoundaryOfVisible) {
  Random random(11);
  const AttentionShape shape = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 32};
  for (RowType type :
       {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
    Rows rows = MakeRows(shape, type, type, 640, &random);
    const auto q = RandomValues(64, &random);
    for (int32_t visible : kernels_test::kVisibleCounts) {
      const auto expected = Reference(rows, q, visible);
      ExpectSameBits(expected, Attend(kernels(), rows, rows.Whole(), q, visible),
                     fmt::format("{}, visible {}", RowTypeName(type), visible));
      rows.PoisonFrom(visible);
      ExpectSameBits(expected, Attend(kernels(), rows, rows.Whole(), q, visible),
                     fmt::format("{}, visible {}, poisoned", RowTypeName(type), visible));
    }
  }
}

// Rows before the window are not read, wherever it begins and ends.
TEST_P(AttentionTest, AWindowLeavesOutTheRowsBeforeIt) {
  Random random(19);
  for (int32_t window : kernels_test::kWindows) {
    const AttentionShape shape = {
        .num_heads = 2, .num_kv_heads = 1, .head_dim = 32, .window = window};
    for (RowType type :
         {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
      Rows rows = MakeRows(shape, type, type, 600, &random);
      const auto q = RandomValues(64, &random);
      for (int32_t visible : {1, 16, 17, 100, 256, 257, 272, 511, 513, 559, 600}) {
        const auto expected = Reference(rows, q, visible);
        Rows poisoned = rows;
        poisoned.PoisonFrom(visible);
        poisoned.Poison(0, std::max(0, visible - window));
        const auto where =
            fmt::format("{}, window {}, visible {}", RowTypeName(type), window, visible);
        ExpectSameBits(expected, Attend(kernels(), rows, rows.Whole(), q, visible), where);
        ExpectSameBits(expected, Attend(kernels(), rows, poisoned.Whole(), q, visible),
                       where + ", poisoned");
      }
    }
  }
}

// What a cache has forgotten is not there to be read: the view begins where the first query's
// window does, or before. Several queries share the pass, and segments end anywhere.
TEST_P(AttentionTest, AViewMayBeginWhereTheWindowDoes) {
  Random random(21);
  for (int32_t window : {1, 2, 7, 15, 16, 17, 33, 100, 255, 257}) {
    const AttentionShape shape = {
        .num_heads = 4, .num_kv_heads = 2, .head_dim = 24, .window = window};
    const Rows rows = MakeRows(shape, RowType::kF32, RowType::kF16, 600, &random);
    for (int32_t visible : {1, 16, 17, 100, 256, 258, 300, 513, 590}) {
      const std::vector<int32_t> counts = {visible, visible + 1, visible + 4};
      const int32_t sees_from = std::max(0, visible - window);
      const int32_t first = sees_from - std::min(sees_from, random.Between(0, 20));
      Pieces pieces = CutAtRandom(rows, 1 + random.Between(0, 50), &random);
      while (pieces.view.segments.front().first + pieces.view.segments.front().count <= first) {
        pieces.view.segments.erase(pieces.view.segments.begin());
      }
      const int32_t end = pieces.view.segments.front().first + pieces.view.segments.front().count;
      std::vector<std::byte> keys(static_cast<size_t>(end - first) * 48 * 4),
          values(keys.size() / 2);
      KvSegment head = rows.Segment(first, end - first);
      std::copy_n(head.keys, keys.size(), keys.data());
      std::copy_n(head.values, values.size(), values.data());
      head.keys = keys.data();
      head.values = values.data();
      pieces.view.segments.front() = head;
      ASSERT_EQ(pieces.view.first(), first);
      const auto q = RandomValues(3 * 96, &random);
      std::vector<float> out(q.size()), expected;
      for (size_t i = 0; i < counts.size(); ++i) {
        const std::vector<float> one(&q[i * 96], &q[i * 96] + 96);
        const auto alone = Reference(rows, one, counts[i]);
        expected.insert(expected.end(), alone.begin(), alone.end());
      }
      AlignedBuffer<float> scratch(AttentionScratch(shape, counts.back()));
      const AttentionQueries queries = {
          .count = 3, .q = q.data(), .out = out.data(), .visible = counts.data()};
      kernels().attention(shape, queries, pieces.view, 0, 4, scratch.data());
      ExpectSameBits(expected, out,
                     fmt::format("window {}, visible {}, rows from {}", window, visible, first));
    }
  }
}

TEST_P(AttentionTest, ACapBendsEveryScore) {
  Random random(20);
  for (int32_t window : {0, 21}) {
    const AttentionShape shape = {
        .num_heads = 4, .num_kv_heads = 2, .head_dim = 24, .window = window, .cap = 3.0f};
    const Rows rows = MakeRows(shape, RowType::kF32, RowType::kF32, 70, &random);
    const auto q = RandomValues(96, &random);
    for (int32_t visible : {1, 15, 16, 33, 70}) {
      ExpectSameBits(Reference(rows, q, visible), Attend(kernels(), rows, rows.Whole(), q, visible),
                     fmt::format("window {}, visible {}", window, visible));
    }
  }
}

TEST_P(AttentionTest, NoCutIntoSegmentsChangesABit) {
  Random random(12);
  const AttentionShape shape = {.num_heads = 2, .num_kv_heads = 2, .head_dim = 32};
  for (RowType type :
       {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
    const Rows rows = MakeRows(shape, type, type, 600, &random);
    const auto q = RandomValues(64, &random);
    for (int32_t visible : {1, 255, 257, 600}) {
      const auto whole = Attend(kernels(), rows, rows.Whole(), q, visible);
      for (int32_t longest : {1, 3, 16, 100, 300, 599}) {
        const Pieces pieces = CutAtRandom(rows, longest, &random);
        ExpectSameBits(whole, Attend(kernels(), rows, pieces.view, q, visible),
                       fmt::format("{}, visible {}, {} segments", RowTypeName(type), visible,
                                   pieces.view.segments.size()));
      }
    }
  }
}

// Several queries share a pass over the rows, threads share the heads: no way of cutting either
// changes a bit. Visible counts end at, before and after the boundaries of vectors and segments.
TEST_P(AttentionTest, NoTileOfQueriesAndHeadsChangesABit) {
  Random random(18);
  for (const auto& [heads, kv_heads, head_dim, window] : {std::tuple{9, 3, 64, 0},
                                                          {6, 6, 32, 0},
                                                          {20, 1, 32, 0},
                                                          {4, 2, 24, 0},
                                                          {7, 1, 100, 0},
                                                          {6, 6, 32, 1},
                                                          {6, 6, 32, 9},
                                                          {4, 2, 24, 40},
                                                          {7, 1, 48, 260}}) {
    const AttentionShape shape = {
        .num_heads = heads, .num_kv_heads = kv_heads, .head_dim = head_dim, .window = window};
    for (RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
      if (window > 0 && type != RowType::kF32) continue;
      const Rows rows = MakeRows(shape, type, type, 330, &random);
      const Pieces pieces = CutAtRandom(rows, 40, &random);
      std::vector<int32_t> visible;
      for (int32_t v = random.Between(1, 20); v <= 330; v += random.Between(1, 9)) {
        visible.push_back(v);
      }
      const auto width = static_cast<size_t>(heads * head_dim);
      const auto q = RandomValues(visible.size() * width, &random);
      std::vector<float> expected;
      for (size_t i = 0; i < visible.size(); ++i) {
        const std::vector<float> one(&q[i * width], &q[i * width] + width);
        const auto out = Reference(rows, one, visible[i]);
        expected.insert(expected.end(), out.begin(), out.end());
      }
      std::vector<float> out(q.size() + 1, kCanary);
      AlignedBuffer<float> scratch(AttentionScratch(shape, visible.back()));
      for (size_t begin = 0; begin < visible.size();) {
        const size_t count = std::min(visible.size() - begin, size_t{1} + random.Below(23));
        const AttentionQueries queries = {.count = static_cast<int32_t>(count),
                                          .q = &q[begin * width],
                                          .out = &out[begin * width],
                                          .visible = &visible[begin]};
        const int32_t cut = random.Between(0, heads);
        kernels().attention(shape, queries, pieces.view, cut, heads, scratch.data());
        kernels().attention(shape, queries, pieces.view, 0, cut, scratch.data());
        begin += count;
      }
      EXPECT_EQ(out.back(), kCanary);
      out.pop_back();
      ExpectSameBits(
          expected, out,
          fmt::format("{} heads over {} of {}, {}", heads, kv_heads, head_dim, RowTypeName(type)));
    }
  }
}

// A window keeps recent rows exactly: neighbouring segments have other types.
TEST_P(AttentionTest, SegmentsMayDifferInType) {
  Random random(13);
  const AttentionShape shape = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64};
  Rows old_rows = MakeRows(shape, RowType::kQ8_0, RowType::kQ4_0, 300, &random);
  Rows plain = MakeRows(shape, RowType::kF32, RowType::kF32, 300, &random);
  for (int32_t p = 0; p < 270; ++p) {
    for (int64_t e = 0; e < plain.stride(); ++e) {
      const float key = old_rows.Key(p, e), value = old_rows.Value(p, e);
      std::memcpy(plain.keys.data() + 4 * (p * plain.stride() + e), &key, 4);
      std::memcpy(plain.values.data() + 4 * (p * plain.stride() + e), &value, 4);
    }
  }
  const KvView mixed = {.length = 300,
                        .segments = {old_rows.Segment(0, 270), plain.Segment(270, 30)}};
  const auto q = RandomValues(256, &random);
  for (int32_t visible : {270, 271, 300}) {
    ExpectSameBits(Reference(plain, q, visible), Attend(kernels(), plain, mixed, q, visible),
                   fmt::format("visible {}", visible));
  }
}

TEST_P(AttentionTest, HeadsReadTheirOwnKvHead) {
  Random random(14);
  for (const auto& [heads, kv_heads] : {std::pair{9, 3}, {28, 4}, {8, 8}, {8, 1}}) {
    for (int32_t head_dim : {8, 32}) {
      const AttentionShape shape = {
          .num_heads = heads, .num_kv_heads = kv_heads, .head_dim = head_dim};
      const Rows rows = MakeRows(shape, RowType::kF32, RowType::kF32, 20, &random);
      const auto q = RandomValues(static_cast<size_t>(heads * head_dim), &random);
      ExpectSameBits(Reference(rows, q, 19), Attend(kernels(), rows, rows.Whole(), q, 19),
                     fmt::format("{} heads over {} of {}", heads, kv_heads, head_dim));
    }
  }
}

TEST_P(AttentionTest, EveryHeadDimension) {
  Random random(15);
  for (int32_t head_dim : kernels_test::kHeadDims) {
    for (RowType type :
         {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0, RowType::kQ4_0}) {
      const bool block = type == RowType::kQ8_0 || type == RowType::kQ4_0;
      if (block && head_dim % 32 != 0) continue;
      const AttentionShape shape = {.num_heads = 4, .num_kv_heads = 2, .head_dim = head_dim};
      const Rows rows = MakeRows(shape, type, type, 40, &random);
      const auto q = RandomValues(static_cast<size_t>(4 * head_dim), &random);
      ExpectSameBits(Reference(rows, q, 37), Attend(kernels(), rows, rows.Whole(), q, 37),
                     fmt::format("{}, head_dim {}", RowTypeName(type), head_dim));
    }
  }
}

TEST_P(AttentionTest, NonFiniteScoresReachTheOutput) {
  const AttentionShape shape = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 8};
  Random random(16);
  const auto q = RandomValues(8, &random);
  for (float bad : {INFINITY, -INFINITY, std::nanf("")}) {
    Rows rows = MakeRows(shape, RowType::kF32, RowType::kF32, 20, &random);
    std::memcpy(rows.keys.data() + 4 * 8 * 3, &bad, 4);
    const auto out = Attend(kernels(), rows, rows.Whole(), q, 20);
    ExpectSameBits(Reference(rows, q, 20), out, fmt::format("key {}", bad));
    ExpectSameBits(Reference(rows, q, 3), Attend(kernels(), rows, rows.Whole(), q, 3),
                   fmt::format("key {} not visible", bad));
  }
}

// A lone partial sum is the result itself: adding it to +0 would lose the sign of -0.
TEST_P(AttentionTest, ANegativeUnderflowStaysNegative) {
  const std::vector<float> q = {1.0f}, keys = {0.0f, -97.0f}, values = {0.0f, -1e-20f};
  const KvView view = {.length = 2,
                       .segments = {{.first = 0,
                                     .count = 2,
                                     .keys = std::as_bytes(std::span(keys)).data(),
                                     .values = std::as_bytes(std::span(values)).data()}}};
  float out = 1.0f;
  kernels_test::Attend(kernels(), {.num_heads = 1, .num_kv_heads = 1, .head_dim = 1}, q.data(),
                       view, 2, &out);
  EXPECT_EQ(std::bit_cast<uint32_t>(out), 0x80000000u);
}

TEST(AttentionDeathTest, WrongUse) {
  Random random(17);
  const AttentionShape shape = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 16};
  const Rows rows = MakeRows(shape, RowType::kF32, RowType::kF32, 4, &random);
  std::vector<float> q(64), out(64);
  const auto attend = [&](const AttentionShape& other, const KvView& view, int32_t visible) {
    kernels_test::Attend(SelectKernels(), other, q.data(), view, visible, out.data());
  };
  EXPECT_DEATH(attend(shape, rows.Whole(), 0), "visible 0 of 4");
  EXPECT_DEATH(attend(shape, rows.Whole(), 5), "visible 5 of 4");
  EXPECT_DEATH(attend({.num_heads = 4, .num_kv_heads = 3, .head_dim = 16}, rows.Whole(), 4),
               "4 heads over 3");
  EXPECT_DEATH(
      attend(shape, {.length = 4, .segments = {rows.Segment(0, 2), rows.Segment(3, 1)}}, 4),
      "segment starts at 3, expected 2");
  EXPECT_DEATH(attend(shape, {.length = 4, .segments = {rows.Segment(0, 3)}}, 3), "cover 3 of 4");
  const AttentionShape narrow = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 16, .window = 2};
  EXPECT_DEATH(attend(narrow, {.length = 4, .segments = {rows.Segment(2, 2)}}, 3),
               "rows from 1 are seen, they begin at 2");
  KvView blocks = rows.Whole();
  blocks.segments[0].value_type = RowType::kQ4_0;
  EXPECT_DEATH(attend(shape, blocks, 4), "head_dim 16 in a block format");
}

std::string TableName(const testing::TestParamInfo<const KernelTable*>& param) {
  return std::string(param.param->name);
}

INSTANTIATE_TEST_SUITE_P(AllTables, AttentionTest,
                         testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()),
                         TableName);

}  // namespace
}  // namespace lockstep
