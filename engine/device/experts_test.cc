// Experts against a plain reference in the words of engine/ARITHMETIC.md 4.8, bit for bit.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/device/kernels.h"
#include "engine/device/test_device.h"
#include "engine/kernels/test_inputs.h"
#include "engine/math.h"

namespace lockstep {
namespace {

using device_test::ExpectSameBits;
using kernels_test::RandomValues;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Routed {
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};

// Of one row.
Routed RouteOnHost(std::span<const float> logits, int32_t used, bool normalize) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (std::isnan(y) && !std::isnan(x));
  });
  Routed out;
  out.chosen.assign(order.begin(), order.begin() + used);
  std::ranges::sort(out.chosen);
  float top = -kInf;
  for (const float logit : logits) top = logit > top ? logit : top;
  std::vector<float> e, lanes(16);
  for (size_t j = 0; j < logits.size(); ++j) {
    e.push_back(CanonicalExp(logits[j] - top));
    lanes[j % 16] += e[j];
  }
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  for (const int32_t j : out.chosen) out.weights.push_back(e[static_cast<size_t>(j)] / lanes[0]);
  if (!normalize) return out;
  float sum = out.weights[0];
  for (size_t i = 1; i < out.weights.size(); ++i) sum += out.weights[i];
  for (float& weight : out.weights) weight /= sum;
  return out;
}

class ExpertCases : public device_test::DeviceTest {
 protected:
  using DeviceTest::DeviceTest;

  void CheckRoute(const std::vector<float>& logits, int32_t rows, int32_t used, bool normalize) {
    const auto experts = static_cast<int32_t>(logits.size()) / rows;
    Routed expected;
    for (int32_t r = 0; r < rows; ++r) {
      const Routed row = RouteOnHost(
          std::span(logits).subspan(static_cast<size_t>(r * experts), static_cast<size_t>(experts)),
          used, normalize);
      expected.chosen.insert(expected.chosen.end(), row.chosen.begin(), row.chosen.end());
      expected.weights.insert(expected.weights.end(), row.weights.begin(), row.weights.end());
    }
    const auto device_logits = Put(logits);
    const DeviceBuffer<int32_t> chosen(device(), int64_t{rows} * used);
    const DeviceBuffer<float> weights(device(), int64_t{rows} * used);
    device::Route(stream(), {.rows = rows,
                             .experts = experts,
                             .used = used,
                             .normalize = normalize,
                             .logits = device_logits.all(),
                             .chosen = chosen.all(),
                             .weights = weights.all()});
    const std::string where = fmt::format("{} of {} experts", used, experts);
    EXPECT_EQ(expected.chosen, Get(chosen)) << where;
    ExpectSameBits(expected.weights, Get(weights), where);
  }

  void CheckSum(int32_t rows, int32_t dim, int32_t used, bool shared) {
    Random random(4);
    const auto n = static_cast<size_t>(rows), width = static_cast<size_t>(dim),
               k = static_cast<size_t>(used);
    const auto weights = RandomValues(n * k, &random);
    const auto outputs = RandomValues(n * k * width, &random);
    const auto logits = RandomValues(n, &random);
    const auto of_shared = RandomValues(n * width, &random);
    auto residual = RandomValues(n * width, &random);
    const auto device_residual = Put(residual);
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < width; ++i) {
        float y = weights[r * k] * outputs[r * k * width + i];
        for (size_t s = 1; s < k; ++s) {
          const float part = weights[r * k + s] * outputs[(r * k + s) * width + i];
          y = y + part;
        }
        if (shared) {
          const float part = (1.0f / (1.0f + CanonicalExp(-logits[r]))) * of_shared[r * width + i];
          y = y + part;
        }
        residual[r * width + i] = residual[r * width + i] + y;
      }
    }
    const auto device_weights = Put(weights);
    const auto device_outputs = Put(outputs);
    const auto device_logits = Put(logits);
    const auto device_shared = Put(of_shared);
    device::AddExpertsArgs args = {.rows = rows,
                                   .dim = dim,
                                   .used = used,
                                   .weights = device_weights.all(),
                                   .outputs = device_outputs.all(),
                                   .shared_logit = {},
                                   .shared = {},
                                   .residual = device_residual.all()};
    if (shared) {
      args.shared_logit = device_logits.all();
      args.shared = device_shared.all();
    }
    device::AddExperts(stream(), args);
    ExpectSameBits(residual, Get(device_residual), fmt::format("{} experts of {}", used, dim));
  }
};

class DeviceExpertsTest : public ExpertCases {};

TEST_P(DeviceExpertsTest, EachRowTakesItsLargestLogits) {
  Random random(3);
  for (const int32_t experts : {1, 2, 5, 16, 17, 64, 128, 257, 1024}) {
    for (const int32_t used : {1, 2, 8, experts}) {
      if (used > experts) continue;
      for (const bool normalize : {true, false}) {
        CheckRoute(RandomValues(3 * static_cast<size_t>(experts), &random), 3, used, normalize);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST_P(DeviceExpertsTest, EqualAndUnorderedLogits) {
  const std::vector<std::vector<float>> rows = {
      {1, 1, 1, 1},       {0, 2, 1, 2, 2},        {0.0f, -0.0f, 0.0f},
      {-0.0f, 0.0f},      {kNan, -kInf, kNan, 1}, {kNan, kNan, kNan},
      {kInf, 3, kInf, 2}, {-kInf, -kInf},         {90, -90, 89, 0}};
  for (const std::vector<float>& logits : rows) {
    for (int32_t used = 1; used <= static_cast<int32_t>(logits.size()); ++used) {
      CheckRoute(logits, 1, used, true);
      CheckRoute(logits, 1, used, false);
    }
  }
}

TEST_P(DeviceExpertsTest, TheirSumIsInIncreasingOrder) {
  for (const int32_t dim : {1, 72, 256, 300}) {
    for (const int32_t used : {1, 2, 7}) {
      CheckSum(3, dim, used, true);
      CheckSum(3, dim, used, false);
    }
  }
}

LOCKSTEP_ON_DEVICES(DeviceExpertsTest);

class CheckedExpertsTest : public ExpertCases {};
LOCKSTEP_ON_CHECKED_DEVICES(CheckedExpertsTest);

TEST_P(CheckedExpertsTest, KeepsTheModel) {
  Random random(5);
  CheckRoute(RandomValues(2 * 130, &random), 2, 3, true);
  CheckSum(2, 300, 2, true);
}

}  // namespace
}  // namespace lockstep
