// RMSNorm, RoPE, SiLU gate, add, activation quantization and argmax, against the words of
// engine/ARITHMETIC.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "engine/kernels.h"
#include "engine/kernels/test_inputs.h"
#include "engine/math.h"

namespace lockstep {
namespace {

using kernels_test::RandomValue;
using kernels_test::RandomValues;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kCanary = -0x1.abcdp+100f;

class RowsTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& kernels() const { return *GetParam(); }
};

void ExpectSameBits(float expected, float actual, const std::string& where) {
  EXPECT_EQ(CanonicalBits(expected), CanonicalBits(actual))
      << where << ": expected " << expected << ", got " << actual;
}

// tree16 of fma(x, x, acc).
float SumOfSquares(const std::vector<float>& x) {
  std::array<float, 16> a = {};
  for (size_t i = 0; i < x.size(); ++i) a[i % 16] = std::fma(x[i], x[i], a[i % 16]);
  for (size_t j = 0; j < 8; ++j) a[j] += a[j + 8];
  for (size_t j = 0; j < 4; ++j) a[j] += a[j + 4];
  for (size_t j = 0; j < 2; ++j) a[j] += a[j + 2];
  return a[0] + a[1];
}

TEST_P(RowsTest, RmsNormOfEveryShortLength) {
  Random random(3);
  std::vector<int32_t> lengths = {576, 2048};
  for (int32_t n = 1; n <= 70; ++n) lengths.push_back(n);
  for (int32_t n : lengths) {
    const auto count = static_cast<size_t>(n);
    const auto x = RandomValues(count, &random);
    const auto weight = RandomValues(count, &random);
    const float r = 1.0f / std::sqrt(SumOfSquares(x) / static_cast<float>(n) + 1e-5f);
    std::vector<float> y(count + 1, kCanary);
    kernels().rms_norm(x.data(), weight.data(), n, 1e-5f, y.data());
    std::vector<float> in_place = x;
    kernels().rms_norm(in_place.data(), weight.data(), n, 1e-5f, in_place.data());
    for (size_t i = 0; i < count; ++i) {
      const float expected = (x[i] * r) * weight[i];
      ExpectSameBits(expected, y[i], fmt::format("n {}, element {}", n, i));
      ExpectSameBits(expected, in_place[i], fmt::format("in place, n {}, element {}", n, i));
    }
    EXPECT_EQ(y[count], kCanary) << "written past n " << n;
  }
}

// Where the partner of element d of a head lies, for both ways to pair.
struct Pairing {
  bool halves = false;
  size_t rope_dim = 0;

  size_t Index(size_t d) const { return halves ? d % (rope_dim / 2) : d / 2; }  // of its angle
  bool IsFirst(size_t d) const { return halves ? d < rope_dim / 2 : d % 2 == 0; }
  size_t Distance() const { return halves ? rope_dim / 2 : 1; }
  void Rotate(const KernelTable& kernels, float* x, int32_t heads, int32_t head_dim,
              const std::vector<float>& cos, const std::vector<float>& sin) const {
    (halves ? kernels.rope_halves : kernels.rope_interleaved)(
        x, heads, head_dim, static_cast<int32_t>(rope_dim), cos.data(), sin.data());
  }
};

TEST_P(RowsTest, RopeTurnsThePairAndNothingElse) {
  constexpr int32_t kHeads = 3, kHeadDim = 10, kRopeDim = 6;
  const std::vector<float> cos = {0.5f, 0.25f, -0.75f};
  const std::vector<float> sin = {0.125f, -0.625f, 0.375f};
  for (const bool halves : {false, true}) {
    const Pairing pairing = {halves, kRopeDim};
    for (size_t hot = 0; hot < size_t{kHeads} * kHeadDim; ++hot) {
      std::vector<float> x(size_t{kHeads} * kHeadDim + 1, 0.0f);
      x.back() = kCanary;
      x[hot] = 1.0f;
      std::vector<float> expected = x;
      const size_t d = hot % kHeadDim;
      if (d < kRopeDim) {
        const size_t angle = pairing.Index(d);
        expected[hot] = cos[angle];
        if (pairing.IsFirst(d)) {
          expected[hot + pairing.Distance()] = sin[angle];
        } else {
          expected[hot - pairing.Distance()] = -sin[angle];
        }
      }
      pairing.Rotate(kernels(), x.data(), kHeads, kHeadDim, cos, sin);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(x[i], expected[i]) << "one at " << hot << ", element " << i << ", " << halves;
      }
    }
  }
}

TEST_P(RowsTest, RopeRoundsAsWritten) {
  Random random(4);
  for (int32_t head_dim : kernels_test::kHeadDims) {
    for (int32_t rope_dim : {head_dim / 2 * 2, head_dim / 4 * 2}) {
      if (rope_dim == 0) continue;
      const auto half = static_cast<size_t>(rope_dim / 2);
      const auto x = RandomValues(static_cast<size_t>(2 * head_dim), &random);
      const auto cos = RandomValues(half, &random);
      const auto sin = RandomValues(half, &random);
      for (const bool halves : {false, true}) {
        const Pairing pairing = {halves, static_cast<size_t>(rope_dim)};
        std::vector<float> y = x;
        pairing.Rotate(kernels(), y.data(), 2, head_dim, cos, sin);
        for (size_t i = 0; i < x.size(); ++i) {
          const size_t d = i % static_cast<size_t>(head_dim);
          float expected = x[i];
          if (d < static_cast<size_t>(rope_dim)) {
            const float c = cos[pairing.Index(d)], s = sin[pairing.Index(d)];
            expected = pairing.IsFirst(d) ? std::fma(x[i], c, -(x[i + pairing.Distance()] * s))
                                          : std::fma(x[i - pairing.Distance()], s, x[i] * c);
          }
          ExpectSameBits(expected, y[i],
                         fmt::format("{} of {}, element {}", rope_dim, head_dim, i));
        }
      }
    }
  }
}

TEST_P(RowsTest, ScaleMultipliesAndNothingElse) {
  Random random(6);
  for (int32_t n : {1, 15, 16, 33, 100}) {
    auto y = RandomValues(static_cast<size_t>(n), &random);
    const auto x = y;
    y.push_back(kCanary);
    kernels().scale(0.34f, n, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ExpectSameBits(x[i] * 0.34f, y[i], fmt::format("n {}, element {}", n, i));
    }
    EXPECT_EQ(y.back(), kCanary) << "written past n " << n;
  }
}

TEST_P(RowsTest, SiluGateAndAdd) {
  Random random(5);
  std::vector<float> gate = {0.0f,   -0.0f, kInf,   -kInf, kNan,  88.0f,  89.0f,
                             -88.0f, 90.f,  -90.0f, 1e30f, -1e30, 1e-45f, -1e-45f};
  while (gate.size() < 100) gate.push_back(RandomValue(&random));
  const auto up = RandomValues(gate.size(), &random);
  for (int32_t n : kernels_test::kGateLengths) {
    std::vector<float> out(gate.size(), kCanary);
    kernels().silu_gate(gate.data(), up.data(), n, out.data());
    std::vector<float> in_place = gate;
    kernels().silu_gate(in_place.data(), up.data(), n, in_place.data());
    std::vector<float> sum = up;
    kernels().add(gate.data(), n, sum.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const bool inside = i < static_cast<size_t>(n);
      const float expected = (gate[i] / (1.0f + CanonicalExp(-gate[i]))) * up[i];
      ExpectSameBits(inside ? expected : kCanary, out[i], fmt::format("n {}, gate {}", n, gate[i]));
      ExpectSameBits(inside ? expected : gate[i], in_place[i], fmt::format("in place {}", gate[i]));
      ExpectSameBits(inside ? gate[i] + up[i] : up[i], sum[i], fmt::format("add {}", gate[i]));
    }
  }
}

// One block quantized; the next is a canary.
ActivationBlock QuantizeBlock(const KernelTable& kernels, const std::vector<float>& x) {
  std::array<ActivationBlock, 2> blocks = {};
  blocks[1].quants[0] = 99;
  kernels.quantize_activations(x.data(), 32, blocks.data());
  EXPECT_EQ(blocks[1].quants[0], 99) << "written past the block";
  const ActivationBlock& out = blocks[0];
  int32_t sum = 0;
  for (size_t i = 0; i < 32; ++i) sum += out.quants[i];
  EXPECT_EQ(out.offset, -128 * sum);
  return out;
}

TEST_P(RowsTest, GeluGate) {
  Random random(12);
  for (int32_t n : kernels_test::kGateLengths) {
    const auto count = static_cast<size_t>(n);
    auto gate = RandomValues(count, &random);
    const auto up = RandomValues(count, &random);
    if (n == 33) {
      gate[0] = kInf, gate[1] = -kInf, gate[2] = kNan, gate[3] = 0x1p+100f, gate[4] = -0x1p+100f;
      gate[5] = -0.0f, gate[6] = 0x1p-140f;
    }
    std::vector<float> out(count + 1, kCanary);
    kernels().gelu_gate(gate.data(), up.data(), n, out.data());
    for (size_t i = 0; i < count; ++i) {
      const float g = gate[i];
      const float w = (g * std::fma(0x1.6e4e26p-5f, g * g, 1.0f)) * 0x1.988454p+0f;
      ExpectSameBits((g / (1.0f + CanonicalExp(-w))) * up[i], out[i],
                     fmt::format("{} of {}", i, n));
    }
    EXPECT_EQ(out[count], kCanary);
  }
  // It is GELU: the function of its paper at some points.
  const std::vector<float> points = {-3.0f, -1.0f, -0.5f, 0.0f, 0.5f, 1.0f, 3.0f}, ones(7, 1.0f);
  std::vector<float> out(7);
  kernels().gelu_gate(points.data(), ones.data(), 7, out.data());
  for (size_t i = 0; i < 7; ++i) {
    const double x = points[i];
    EXPECT_NEAR(out[i], x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))), 1e-3) << x;
    const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(out[i], 0.5 * x * (1 + std::tanh(inner)), 1e-6) << x;
  }
}

TEST_P(RowsTest, SoftCapOfEveryShortLength) {
  Random random(13);
  for (int32_t n = 1; n <= 35; ++n) {
    const auto count = static_cast<size_t>(n);
    std::vector<float> y = RandomValues(count, &random);
    y.push_back(kCanary);
    const std::vector<float> before = y;
    kernels().soft_cap(2.5f, n, y.data());
    for (size_t i = 0; i < count; ++i) {
      ExpectSameBits(CanonicalTanh(before[i] / 2.5f) * 2.5f, y[i], fmt::format("{} of {}", i, n));
    }
    EXPECT_EQ(y[count], kCanary);
  }
}

TEST_P(RowsTest, QuantizationRoundsHalfToEven) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // scale 1
  const std::vector<float> halves = {0.5f,  1.5f,   2.5f,    -0.5f, -1.5f,
                                     -2.5f, 126.5f, -126.5f, 125.5f};
  const std::vector<int> expected = {0, 2, 2, 0, -2, -2, 126, -126, 126};
  std::copy(halves.begin(), halves.end(), x.begin() + 1);
  x[31] = -127.0f;
  const ActivationBlock q = QuantizeBlock(kernels(), x);
  EXPECT_EQ(q.scale, 1.0f);
  EXPECT_EQ(q.quants[0], 127);
  EXPECT_EQ(q.quants[31], -127);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(q.quants[1 + i], expected[i]) << halves[i];
}

TEST_P(RowsTest, QuantizationFollowsTheFormula) {
  Random random(6);
  for (int round = 0; round < 2000; ++round) {
    auto x = RandomValues(32, &random);
    const float scale = std::ldexp(1.0f, random.Between(-110, 110));
    for (float& value : x) value *= scale;
    float amax = 0;
    for (float value : x) amax = std::max(amax, std::fabs(value));
    const float id = 127.0f / amax;
    const ActivationBlock q = QuantizeBlock(kernels(), x);
    ExpectSameBits(amax / 127.0f, q.scale, fmt::format("amax {}", amax));
    for (size_t i = 0; i < 32; ++i) {
      ASSERT_EQ(q.quants[i], static_cast<int>(std::nearbyint(x[i] * id))) << x[i] << " of " << amax;
    }
  }
}

TEST_P(RowsTest, QuantizationOfTinyHugeAndNonFiniteBlocks) {
  const auto block = [](float value, size_t at = 7) {
    std::vector<float> x(32, 0.0f);
    x[at] = value;
    return x;
  };
  struct Case {
    float value;
    float scale;
    int quant;
  };
  const float limit = 0x1.fcp-122f;  // 127 * 2^-128: the largest whose 127 / amax is infinite
  const float above = std::nextafter(limit, 1.0f);
  const std::vector<Case> cases = {
      {0.0f, 0.0f, 0},
      {-0.0f, 0.0f, 0},
      {std::bit_cast<float>(1u), 0.0f, 0},
      {-0x1p-126f, 0.0f, 0},
      {limit, 0.0f, 0},
      {above, above / 127.0f, 127},
      {-above, above / 127.0f, -127},
      {0x1.fffffep+127f, 0x1.fffffep+127f / 127.0f, 127},
      {-0x1.fffffep+127f, 0x1.fffffep+127f / 127.0f, -127},
      {kInf, kNan, 0},
      {-kInf, kNan, 0},
      {kNan, kNan, 0},
      {std::bit_cast<float>(0xff800001u), kNan, 0},
  };
  for (const Case& c : cases) {
    for (size_t at : {size_t{0}, size_t{7}, size_t{31}}) {
      const ActivationBlock q = QuantizeBlock(kernels(), block(c.value, at));
      ExpectSameBits(c.scale, q.scale, fmt::format("scale of {}", c.value));
      for (size_t i = 0; i < 32; ++i) EXPECT_EQ(q.quants[i], i == at ? c.quant : 0) << c.value;
    }
  }
  // One non-finite element hides the finite ones of its block and no others.
  std::vector<float> x(64, 3.0f);
  x[40] = kNan;
  std::array<ActivationBlock, 2> blocks = {};
  kernels().quantize_activations(x.data(), 64, blocks.data());
  EXPECT_EQ(blocks[0].scale, 3.0f / 127.0f);
  EXPECT_TRUE(std::isnan(blocks[1].scale));
  EXPECT_EQ(blocks[0].offset, -128 * 32 * 127);
  EXPECT_EQ(blocks[1].offset, 0);
}

TEST(ArgMaxTest, LowestIndexOfTheLargestNumber) {
  const auto at = [](std::vector<float> values) { return ArgMax(values); };
  EXPECT_EQ(at({1.0f}), 0);
  EXPECT_EQ(at({1.0f, 3.0f, 3.0f, 2.0f}), 1);
  EXPECT_EQ(at({-0.0f, 0.0f}), 0);
  EXPECT_EQ(at({0.0f, -0.0f}), 0);
  EXPECT_EQ(at({kNan, -kInf, kNan, -kInf}), 1);
  EXPECT_EQ(at({kNan, 1.0f, kNan, 2.0f, kNan}), 3);
  EXPECT_EQ(at({2.0f, kNan, 1.0f}), 0);
  EXPECT_EQ(at({kNan, kNan}), 0);
  EXPECT_EQ(at({-kInf, -kInf}), 0);
  EXPECT_EQ(at({1.0f, kInf, kInf}), 1);
}

TEST(ArgMaxTest, EveryPlaceOfEveryLength) {
  for (size_t size = 1; size <= 50; ++size) {
    for (size_t place = 0; place < size; ++place) {
      std::vector<float> values(size, -2.0f);
      values[place] = -1.0f;
      if (place > 0) values[place - 1] = kNan;
      if (place + 16 < size) values[place + 16] = -1.0f;  // the same lane, later
      EXPECT_EQ(ArgMax(values), static_cast<int32_t>(place)) << size;
    }
  }
}

std::string TableName(const testing::TestParamInfo<const KernelTable*>& param) {
  return std::string(param.param->name);
}

INSTANTIATE_TEST_SUITE_P(AllTables, RowsTest,
                         testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()),
                         TableName);

}  // namespace
}  // namespace lockstep
