// Attention against the scalar table, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "engine/device/kernels.h"
#include "engine/device/test_device.h"
#include "engine/kernels/test_inputs.h"

namespace lockstep {
namespace {

using device_test::ExpectSameBits;
using kernels_test::RandomHalf;
using kernels_test::RandomValues;
using kernels_test::RandomWeights;
using kernels_test::WeightTypeOf;

constexpr float kCanary = -0x1.abcdp+100f;
constexpr RowType kRowTypes[] = {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8_0,
                                 RowType::kQ4_0};

const KernelTable& Scalar() { return SelectKernels("scalar"); }

struct AttentionCase {
  AttentionShape shape;
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  std::vector<int32_t> positions;
  int32_t window = 0;
  int32_t positions_max = 0;  // 0: one above the last position
  int32_t round = 0;          // queries that the scratch is for; 0: all

  int64_t stride() const { return int64_t{shape.num_kv_heads} * shape.head_dim; }
  int64_t width() const { return int64_t{shape.num_heads} * shape.head_dim; }
  int32_t length() const { return positions.back() + 1; }
  std::string Name() const {
    return fmt::format(
        "{} heads over {} of {}, {} and {}, {} queries from {} on, {} exact rows, window {}, cap "
        "{}",
        shape.num_heads, shape.num_kv_heads, shape.head_dim, RowTypeName(key_type),
        RowTypeName(value_type), positions.size(), positions.front(), window, shape.window,
        shape.cap);
  }
};

// Rows of a cache on the host.
struct Rows {
  std::vector<std::byte> keys, values;
  std::vector<uint16_t> exact_keys, exact_values;  // [exact rows, stride]
  std::vector<int32_t> exact_rows;                 // [queries, window]
};

Rows MakeRows(const AttentionCase& c, Random* random) {
  Rows rows;
  rows.keys = RandomWeights(WeightTypeOf(c.key_type), c.length() * c.stride(), random);
  rows.values = RandomWeights(WeightTypeOf(c.value_type), c.length() * c.stride(), random);
  if (c.window == 0) return rows;
  const auto count = static_cast<size_t>(2 * c.window * c.stride());
  for (size_t i = 0; i < count; ++i) {
    rows.exact_keys.push_back(RandomHalf(random));
    rows.exact_values.push_back(RandomHalf(random));
  }
  for (size_t i = 0; i < c.positions.size() * static_cast<size_t>(c.window); ++i) {
    rows.exact_rows.push_back(random->Below(4) == 0 ? -1 : random->Between(0, 2 * c.window - 1));
  }
  return rows;
}

// What query i reads: a segment for each row.
KvView ViewOf(const AttentionCase& c, const Rows& rows, size_t i) {
  KvView view;
  view.length = c.positions[i] + 1;
  for (int32_t p = 0; p < view.length; ++p) {
    KvSegment row = {.first = p, .count = 1, .key_type = c.key_type, .value_type = c.value_type};
    row.keys = rows.keys.data() + p * RowBytes(c.key_type, c.stride());
    row.values = rows.values.data() + p * RowBytes(c.value_type, c.stride());
    if (c.positions[i] - p < c.window) {
      const int32_t exact =
          rows.exact_rows[i * static_cast<size_t>(c.window) + static_cast<size_t>(p % c.window)];
      if (exact >= 0) {
        const auto at = static_cast<size_t>(exact * c.stride());
        row.key_type = row.value_type = RowType::kF16;
        row.keys = std::as_bytes(std::span(rows.exact_keys)).data() + 2 * at;
        row.values = std::as_bytes(std::span(rows.exact_values)).data() + 2 * at;
      }
    }
    view.segments.push_back(row);
  }
  return view;
}

class AttentionCases : public device_test::DeviceTest {
 protected:
  using DeviceTest::DeviceTest;

  void Check(const AttentionCase& c, uint64_t seed) {
    Random random(seed);
    const Rows rows = MakeRows(c, &random);
    const auto q = RandomValues(c.positions.size() * static_cast<size_t>(c.width()), &random);
    CheckRows(c, rows, q);
  }

  void CheckRows(const AttentionCase& c, const Rows& rows, const std::vector<float>& q) {
    std::vector<float> expected(q.size());
    for (size_t i = 0; i < c.positions.size(); ++i) {
      const size_t at = i * static_cast<size_t>(c.width());
      kernels_test::Attend(Scalar(), c.shape, &q[at], ViewOf(c, rows, i), c.positions[i] + 1,
                           &expected[at]);
    }
    std::vector<uint8_t> blocks;
    if (c.width() % 32 == 0) {
      std::vector<ActivationBlock> quantized(q.size() / 32);
      Scalar().quantize_activations(expected.data(), static_cast<int32_t>(q.size()),
                                    quantized.data());
      blocks.resize(quantized.size() * sizeof(ActivationBlock));
      std::memcpy(blocks.data(), quantized.data(), blocks.size());
    }
    std::vector<uint8_t> actual_blocks(blocks.size());
    auto actual = Run(c, rows, q, &actual_blocks);
    EXPECT_EQ(actual.back(), kCanary) << c.Name() << ": written past the end";
    actual.pop_back();
    ExpectSameBits(expected, actual, c.Name());
    if (!std::isfinite(expected[0])) return;
    EXPECT_EQ(blocks, actual_blocks) << c.Name();
  }

 private:
  std::vector<float> Run(const AttentionCase& c, const Rows& rows, const std::vector<float>& q,
                         std::vector<uint8_t>* blocks) {
    const auto queries = static_cast<int32_t>(c.positions.size());
    const auto keys = PutBytes(rows.keys);
    const auto values = PutBytes(rows.values);
    const auto exact_keys = Put(rows.exact_keys);
    const auto exact_values = Put(rows.exact_values);
    const auto exact_rows = Put(rows.exact_rows);
    const auto positions = Put(c.positions);
    const auto device_q = Put(q);
    const auto out = Put(std::vector<float>(q.size() + 1, kCanary));
    const auto device_blocks = Put(*blocks);
    const int32_t most = c.positions_max > 0 ? c.positions_max : c.length();
    const DeviceBuffer<float> scratch(
        device(), device::AttentionScratch(c.shape, c.round > 0 ? c.round : queries, most));
    device::Attention(stream(), {.shape = c.shape,
                                 .view = {.length = c.length(),
                                          .key_type = c.key_type,
                                          .value_type = c.value_type,
                                          .keys = keys.all(),
                                          .values = values.all(),
                                          .window = c.window,
                                          .exact_rows = exact_rows.all(),
                                          .exact_keys = exact_keys.all(),
                                          .exact_values = exact_values.all()},
                                 .queries = queries,
                                 .positions = positions.all(),
                                 .positions_max = most,
                                 .q = device_q.all(),
                                 .out = out.all(),
                                 .blocks = device_blocks.all(),
                                 .scratch = scratch.all()});
    auto result = Get(out);
    *blocks = Get(device_blocks);
    return result;
  }
};

class DeviceAttentionTest : public AttentionCases {};

TEST_P(DeviceAttentionTest, EveryBoundaryOfVisible) {
  for (RowType type : kRowTypes) {
    for (int32_t visible : kernels_test::kVisibleCounts) {
      Check({.shape = {2, 1, 32}, .key_type = type, .value_type = type, .positions = {visible - 1}},
            static_cast<uint64_t>(visible));
      ASSERT_FALSE(HasFailure());
    }
  }
  Check({.shape = {1, 1, 16}, .positions = {2300}}, 1);  // more than a tile of the softmax
}

TEST_P(DeviceAttentionTest, TilesOfQueriesAndHeads) {
  Random random(18);
  for (const auto& [heads, kv_heads, head_dim] :
       {std::tuple{9, 3, 64}, {6, 6, 32}, {20, 1, 32}, {4, 2, 24}, {7, 1, 100}, {3, 1, 160}}) {
    for (RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
      std::vector<int32_t> positions;
      for (int32_t p = random.Between(0, 20); p < 330; p += random.Between(1, 30)) {
        positions.push_back(p);
      }
      Check({.shape = {heads, kv_heads, head_dim},
             .key_type = type,
             .value_type = type,
             .positions = positions,
             .positions_max = type == RowType::kF32 ? 1000 : 0,
             .round = type == RowType::kF32 ? 0 : 5},
            static_cast<uint64_t>(heads));
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(DeviceAttentionTest, EveryHeadDimension) {
  for (int32_t head_dim : kernels_test::kHeadDims) {
    for (RowType type : kRowTypes) {
      const bool block = type == RowType::kQ8_0 || type == RowType::kQ4_0;
      if (block && head_dim % 32 != 0) continue;
      Check({.shape = {4, 2, head_dim}, .key_type = type, .value_type = type, .positions = {36}},
            static_cast<uint64_t>(head_dim));
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(DeviceAttentionTest, HeadsReadTheirOwnKvHead) {
  for (const auto& [heads, kv_heads] : {std::pair{9, 3}, {28, 4}, {8, 8}, {8, 1}}) {
    Check({.shape = {heads, kv_heads, 8, 0.1f}, .positions = {17, 18}}, 3);
  }
}

TEST_P(DeviceAttentionTest, AWindowOfExactRows) {
  for (const auto& [key_type, value_type] :
       {std::pair{RowType::kQ8_0, RowType::kQ4_0}, {RowType::kF16, RowType::kQ8_0}}) {
    for (int32_t window : {1, 4, 33}) {
      Check({.shape = {4, 2, 32},
             .key_type = key_type,
             .value_type = value_type,
             .positions = {3, 4, 5, 40, 270},
             .window = window,
             .round = window == 4 ? 2 : 0},
            static_cast<uint64_t>(window));
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Windows around the lanes of a sum, the tiles of positions and the segments of values; queries
// that share a tile and see rows from different places on.
TEST_P(DeviceAttentionTest, AWindowLeavesTheLastRows) {
  for (int32_t window : kernels_test::kWindows) {
    for (RowType type : kRowTypes) {
      Check({.shape = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .window = window},
             .key_type = type,
             .value_type = type,
             .positions = {0, 3, 15, 16, 40, 255, 256, 257, 330, 600, 601, 602},
             .positions_max = 1000,
             .round = window % 2 == 0 ? 5 : 0},
            static_cast<uint64_t>(window));
      ASSERT_FALSE(HasFailure());
    }
  }
  Check({.shape = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 16, .window = 2100},
         .positions = {2300}},
        1);  // more than a tile of the softmax
}

TEST_P(DeviceAttentionTest, AWindowOverExactRows) {
  for (int32_t window : {2, 6, 40}) {
    Check({.shape = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .window = window},
           .key_type = RowType::kQ8_0,
           .value_type = RowType::kQ4_0,
           .positions = {3, 4, 5, 40, 270},
           .window = 4},
          static_cast<uint64_t>(window));
  }
}

// Rows that no query sees may hold anything.
TEST_P(DeviceAttentionTest, RowsBeforeTheWindowHaveNoPart) {
  Random random(17);
  const AttentionCase c = {
      .shape = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .window = 7},
      .positions = {300, 301, 303}};
  Rows rows = MakeRows(c, &random);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < 294 * c.stride(); ++i) {
    std::memcpy(rows.keys.data() + 4 * i, &nan, 4);
    std::memcpy(rows.values.data() + 4 * i, &nan, 4);
  }
  CheckRows(c, rows, RandomValues(96, &random));
}

TEST_P(DeviceAttentionTest, ACapBendsTheScores) {
  for (const float cap : {0.5f, 5.0f, 50.0f}) {
    for (const int32_t window : {0, 9}) {
      Check({.shape = {.num_heads = 4,
                       .num_kv_heads = 2,
                       .head_dim = 24,
                       .scale = 0.3f,
                       .window = window,
                       .cap = cap},
             .positions = {0, 18, 40}},
            2);
    }
  }
}

TEST_P(DeviceAttentionTest, NonFiniteScoresReachTheOutput) {
  Random random(16);
  for (float bad : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN(), 0x1p-140f}) {
    const AttentionCase c = {.shape = {1, 1, 8}, .positions = {1, 2, 3, 19}};
    Rows rows = MakeRows(c, &random);
    std::memcpy(rows.keys.data() + 4 * 8 * 3, &bad, 4);
    CheckRows(c, rows, RandomValues(32, &random));
  }
}

// A lone partial sum is the result itself: adding it to +0 would lose the sign of -0.
TEST_P(DeviceAttentionTest, ANegativeUnderflowStaysNegative) {
  const std::vector<float> keys = {0.0f, -97.0f}, values = {0.0f, -1e-20f};
  Rows rows;
  const auto bytes = [](const std::vector<float>& x) {
    const auto all = std::as_bytes(std::span(x));
    return std::vector<std::byte>(all.begin(), all.end());
  };
  rows.keys = bytes(keys);
  rows.values = bytes(values);
  CheckRows({.shape = {1, 1, 1}, .positions = {1}}, rows, {1.0f});
}

LOCKSTEP_ON_DEVICES(DeviceAttentionTest);

class CheckedAttentionTest : public AttentionCases {};
LOCKSTEP_ON_CHECKED_DEVICES(CheckedAttentionTest);

TEST_P(CheckedAttentionTest, KeepsTheModel) {
  for (RowType type : kRowTypes) {
    Check({.shape = {4, 2, 32}, .key_type = type, .value_type = type, .positions = {5, 6, 34}}, 1);
  }
  Check({.shape = {2, 1, 17}, .key_type = RowType::kF16, .positions = {2}}, 2);
  Check({.shape = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 16, .window = 5, .cap = 3},
         .positions = {2, 40, 41, 258}},
        4);
  Check({.shape = {9, 1, 32},
         .key_type = RowType::kQ8_0,
         .value_type = RowType::kQ4_0,
         .positions = {3, 4},
         .window = 3},
        3);
}

}  // namespace
}  // namespace lockstep
