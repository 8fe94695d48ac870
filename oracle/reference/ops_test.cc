// The reference's operations on numbers that were worked out by hand.
#include "oracle/reference/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lockstep::oracle {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

Rows RowsOf(int64_t width, std::vector<double> values) {
  Rows rows(static_cast<int64_t>(values.size()) / width, width);
  rows.values = std::move(values);
  return rows;
}

auto Near(double value) { return DoubleNear(value, 1e-12); }

TEST(ReferenceOpsTest, RmsNormDividesByTheRootMeanSquareOfEachRun) {
  // Mean squares 25 / 2 + 3.5 = 16 and 8.
  const Rows y = RmsNorm(RowsOf(4, {3, 4, 4, 0}), {1, 10}, 3.5);
  EXPECT_THAT(y.values, ElementsAre(Near(0.75), Near(10), Near(4 / std::sqrt(11.5)), Near(0)));
}

TEST(ReferenceOpsTest, RopeTurnsAdjacentPairs) {
  // Position 1: pair i turns by theta^(-2i / 4) = 1, 1/10.
  const RopeShape shape{.head_dim = 6, .rope_dim = 4, .theta = 100};
  const std::vector<int64_t> positions = {1};
  const Rows first = Rope(RowsOf(6, {1, 0, 0, 0, 7, 8}), positions, shape);
  EXPECT_THAT(first.values, ElementsAre(Near(std::cos(1)), Near(std::sin(1)), 0, 0, 7, 8));
  const Rows second = Rope(RowsOf(6, {0, 0, 0, 1, 7, 8}), positions, shape);
  EXPECT_THAT(second.values, ElementsAre(0, 0, Near(-std::sin(0.1)), Near(std::cos(0.1)), 7, 8));
}

TEST(ReferenceOpsTest, RopeInHalvesPairsAcrossTheHead) {
  const RopeShape shape{.head_dim = 4, .rope_dim = 4, .theta = 100, .halves = true};
  const std::vector<int64_t> positions = {1};
  const Rows y = Rope(RowsOf(4, {1, 0, 0, 0}), positions, shape);
  EXPECT_THAT(y.values, ElementsAre(Near(std::cos(1)), 0, Near(std::sin(1)), 0));
}

TEST(ReferenceOpsTest, AttentionSharesKvHeadsInGroupsAndSeesWhatIsVisible) {
  // Four query heads of one element, two KV heads. All keys are 0: equal weights.
  AttentionInput input{.heads = 4, .kv_heads = 2, .head_dim = 1, .scale = 1, .visible = {1, 3}};
  const Rows q = RowsOf(4, {1, 2, 3, 4, 1, 2, 3, 4});
  const Rows k = RowsOf(2, {0, 0, 0, 0, 0, 0});
  const Rows v = RowsOf(2, {1, 10, 2, 20, 6, 60});
  EXPECT_THAT(Attention(input, q, k, v).values, ElementsAre(Near(1), Near(1), Near(10), Near(10),
                                                            Near(3), Near(3), Near(30), Near(30)));
  input.head_modulo = true;
  EXPECT_THAT(Attention(input, q, k, v).values, ElementsAre(Near(1), Near(10), Near(1), Near(10),
                                                            Near(3), Near(30), Near(3), Near(30)));
}

TEST(ReferenceOpsTest, AttentionWeighsByTheExponentialOfScaledScores) {
  const AttentionInput input{
      .heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 0.5, .visible = {2}};
  // Scores 0.5 * (2 * 1 + 1 * 2) = 2 and 0: weights e^2 : 1.
  const Rows out =
      Attention(input, RowsOf(2, {2, 1}), RowsOf(2, {1, 2, 0, 0}), RowsOf(2, {1, 0, 0, 1}));
  const double e2 = std::exp(2.0);
  EXPECT_THAT(out.values, ElementsAre(Near(e2 / (e2 + 1)), Near(1 / (e2 + 1))));
}

TEST(ReferenceOpsTest, SwiGluGatesByTheLogisticFunction) {
  const Rows y = SwiGlu(RowsOf(3, {0, 1, -2}), RowsOf(3, {5, 3, 4}));
  EXPECT_THAT(y.values,
              ElementsAre(0, Near(3 / (1 + std::exp(-1.0))), Near(-8 / (1 + std::exp(2.0)))));
}

TEST(ReferenceOpsTest, ResidualAndBiasAdd) {
  Rows y = Residual(RowsOf(2, {1, 2}), RowsOf(2, {10, 20}));
  EXPECT_THAT(y.values, ElementsAre(11, 22));
  AddBias({100, 200}, &y);
  EXPECT_THAT(y.values, ElementsAre(111, 222));
  AddBias({}, &y);
  EXPECT_THAT(y.values, ElementsAre(111, 222));
}

// A bound is worth something when the plainest binary32 evaluation is inside it, and near it.
TEST(ReferenceOpsTest, BoundsCoverOneRoundingAndNotMuchMore) {
  Rows x = RowsOf(1, {1.0});
  Rows third = RowsOf(1, {1.0 / 3.0});
  const double exact = 1.0 + 1.0 / 3.0;
  const double rounded = static_cast<float>(exact);
  const Rows sum = Residual(x, third);
  EXPECT_LE(std::fabs(rounded - exact), sum.bounds[0]);
  EXPECT_LT(sum.bounds[0], 4 * std::fabs(rounded - exact));
}

}  // namespace
}  // namespace lockstep::oracle
