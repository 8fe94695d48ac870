// exp, sine, cosine, power and the RoPE tables, measured against MPFR (https://www.mpfr.org).
#include "engine/math.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "caches/digest.h"
#include "caches/random.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// An MPFR number of `bits` bits, owned.
class Big {
 public:
  explicit Big(mpfr_prec_t bits = 200) { mpfr_init2(value_, bits); }
  ~Big() { mpfr_clear(value_); }
  Big(const Big&) = delete;
  Big& operator=(const Big&) = delete;
  mpfr_ptr get() { return value_; }
  float ToFloat() const { return mpfr_get_flt(value_, MPFR_RNDN); }
  double ToDouble() const { return mpfr_get_d(value_, MPFR_RNDN); }

 private:
  mpfr_t value_;
};

// |actual - e^x| in units of the last place of e^x (binary32, subnormals included).
class ExpError {
 public:
  double UlpsAt(float x, float actual) {
    mpfr_set_flt(x_.get(), x, MPFR_RNDN);
    mpfr_exp(truth_.get(), x_.get(), MPFR_RNDN);
    const double truth = truth_.ToDouble();
    const int last_place = std::max(std::ilogb(truth) - 23, -149);
    return std::fabs(std::ldexp(double{actual} - truth, -last_place));
  }

 private:
  Big x_{24};
  Big truth_{80};
};

constexpr uint32_t kHighBits = 0x42b17217u;  // the last with a finite result
constexpr uint32_t kLowBits = 0xc2cff1b4u;   // the last with a result above 0
constexpr double kExpUlps = 0.895;           // as engine/ARITHMETIC.md states

TEST(ExpTest, WithinTheStatedUlpsOverAllInputs) {
  ExpError error;
  double worst = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4093) {  // a prime
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const float y = CanonicalExp(x);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(y)) << fmt::format("{:08x}", bits);
    } else if (x > std::bit_cast<float>(kHighBits)) {
      ASSERT_EQ(y, kInf) << x;
    } else if (x < std::bit_cast<float>(kLowBits)) {
      ASSERT_EQ(std::bit_cast<uint32_t>(y), 0u) << x;
    } else {
      const double ulps = error.UlpsAt(x, y);
      ASSERT_LE(ulps, kExpUlps) << std::hexfloat << x;
      worst = std::max(worst, ulps);
    }
  }
  RecordProperty("worst_ulps", fmt::format("{:.4f}", worst));
  EXPECT_GT(worst, 0.5) << "a sample that dense must meet more than rounding";
}

TEST(ExpTest, ExponentBoundariesLimitsAndSpecialValues) {
  ExpError error;
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (uint32_t offset : {0u, 1u, 2u, 0x7ffffeu, 0x7fffffu}) {
      for (uint32_t sign : {0u, 0x80000000u}) {
        const float x = std::bit_cast<float>(sign | (exponent << 23) | offset);
        if (std::fabs(x) > 87.0f) continue;
        ASSERT_LE(error.UlpsAt(x, CanonicalExp(x)), kExpUlps) << std::hexfloat << x;
      }
    }
  }
  for (uint32_t worst : {0x40a67634u, 0xc1d57c36u}) {  // of an exhaustive search, either sign
    const double ulps =
        error.UlpsAt(std::bit_cast<float>(worst), CanonicalExp(std::bit_cast<float>(worst)));
    EXPECT_GT(ulps, 0.88);
    EXPECT_LE(ulps, kExpUlps);
  }
  EXPECT_EQ(CanonicalExp(0.0f), 1.0f);
  EXPECT_EQ(CanonicalExp(-0.0f), 1.0f);
  EXPECT_EQ(CanonicalExp(kInf), kInf);
  EXPECT_EQ(std::bit_cast<uint32_t>(CanonicalExp(-kInf)), 0u);
  EXPECT_TRUE(std::isnan(CanonicalExp(std::bit_cast<float>(0x7fc00000u))));
  EXPECT_TRUE(std::isnan(CanonicalExp(std::bit_cast<float>(0xffa00001u))));

  // The limits are where the truth leaves the range, not a step beside it.
  const auto truth = [](uint32_t bits) {
    Big x(24), y(80);
    mpfr_set_flt(x.get(), std::bit_cast<float>(bits), MPFR_RNDN);
    mpfr_exp(y.get(), x.get(), MPFR_RNDN);
    return y.ToFloat();
  };
  const auto at = [](uint32_t bits) { return CanonicalExp(std::bit_cast<float>(bits)); };
  EXPECT_LT(truth(kHighBits), kInf);
  EXPECT_EQ(truth(kHighBits + 1), kInf);
  EXPECT_EQ(truth(kLowBits), std::bit_cast<float>(1u));
  EXPECT_EQ(truth(kLowBits + 1), 0.0f);
  EXPECT_LT(at(kHighBits), kInf);
  EXPECT_EQ(at(kHighBits + 1), kInf);
  EXPECT_EQ(at(kLowBits), std::bit_cast<float>(1u));
  EXPECT_EQ(std::bit_cast<uint32_t>(at(kLowBits + 1)), 0u);
  for (uint32_t bits = kHighBits - 5000; bits <= kHighBits; ++bits) {
    ASSERT_LE(error.UlpsAt(std::bit_cast<float>(bits), at(bits)), kExpUlps);
  }
  for (uint32_t bits = 0xc2aeac00u; bits <= kLowBits; bits += 101) {  // from -87.3: subnormal
    ASSERT_LE(error.UlpsAt(std::bit_cast<float>(bits), at(bits)), kExpUlps);
  }
}

// |actual - truth| in units of the last place of the truth (binary64).
double UlpsOf(double actual, mpfr_ptr truth) {
  Big difference(200);
  mpfr_sub_d(difference.get(), truth, actual, MPFR_RNDN);
  if (mpfr_zero_p(difference.get())) return 0;
  const double last_place = std::ilogb(mpfr_get_d(truth, MPFR_RNDN)) - 52;
  mpfr_mul_2si(difference.get(), difference.get(), -static_cast<long>(last_place), MPFR_RNDN);
  return std::fabs(difference.ToDouble());
}

TEST(SinCosTest, AsGoodAsRoundedUpToTheLimit) {
  Random random(31);
  Big x(64), sine, cosine;
  std::vector<double> inputs = {0.0, 1.0, 0x1p-30, 0x1p+31, -0x1p+31, 0x1p+31 - 0x1p-22};
  for (int i = 0; i < 20000; ++i) {
    const double fraction = static_cast<double>(random.Next() >> 11) * 0x1p-52 - 1.0;  // [-1, 1)
    inputs.push_back(std::ldexp(fraction, random.Between(-20, 31)));
    // Near a multiple of pi / 2, where the reduction cancels.
    mpfr_const_pi(sine.get(), MPFR_RNDN);
    mpfr_mul_ui(sine.get(), sine.get(), random.Below(1u << 30), MPFR_RNDN);
    inputs.push_back(sine.ToDouble() / 2);
  }
  for (double input : inputs) {
    mpfr_set_d(x.get(), input, MPFR_RNDN);
    mpfr_sin_cos(sine.get(), cosine.get(), x.get(), MPFR_RNDN);
    const SinCos actual = CanonicalSinCos(input);
    ASSERT_LE(UlpsOf(actual.cos, cosine.get()), 0.501) << std::hexfloat << input;
    if (input == 0) {
      EXPECT_EQ(actual.sin, 0.0);
      continue;
    }
    ASSERT_LE(UlpsOf(actual.sin, sine.get()), 0.501) << std::hexfloat << input;
  }
}

// The worst of an exhaustive search is 1.363 ulp, just above the place where the two ways meet.
TEST(TanhTest, WithinTheStatedUlpsOverAllInputs) {
  Big x(64), truth;
  double worst = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 40093) {  // a prime
    const float input = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const float y = CanonicalTanh(input);
    if (std::isnan(input)) {
      ASSERT_TRUE(std::isnan(y)) << fmt::format("{:08x}", bits);
      continue;
    }
    mpfr_set_d(x.get(), input, MPFR_RNDN);
    mpfr_tanh(truth.get(), x.get(), MPFR_RNDN);
    const double exact = truth.ToDouble();
    const float near = static_cast<float>(exact);
    const double ulp = double{std::nextafter(std::fabs(near), kInf)} - std::fabs(near);
    worst = std::max(worst, std::fabs(double{y} - exact) / ulp);
    ASSERT_LE(std::fabs(double{y} - exact), 2 * ulp) << std::hexfloat << input;
    ASSERT_EQ(std::signbit(y), std::signbit(input)) << std::hexfloat << input;
    ASSERT_LE(std::fabs(y), 1.0f);
  }
  RecordProperty("worst_ulps", fmt::format("{:.4f}", worst));
  EXPECT_GT(worst, 0.5);
}

TEST(TanhTest, SpecialValues) {
  EXPECT_EQ(CanonicalTanh(kInf), 1.0f);
  EXPECT_EQ(CanonicalTanh(-kInf), -1.0f);
  EXPECT_EQ(std::bit_cast<uint32_t>(CanonicalTanh(-0.0f)), 0x80000000u);
  EXPECT_EQ(CanonicalTanh(0x1p-149f), 0x1p-149f);
}

TEST(PowTest, CorrectlyRounded) {
  Random random(32);
  Big base(64), exponent(64), truth;
  struct Case {
    double base, exponent;
  };
  std::vector<Case> cases = {{2, 10},    {10, 2},     {10000, 0},    {10000, -0.5},
                             {1, 123},   {0.5, 1000}, {2, -1000},    {1.4142135623730951, 2},
                             {1e300, 1}, {1e-300, 1}, {5e-324, 0.5}, {1e6, -126.0 / 128}};
  for (int i = 0; i < 3000; ++i) {
    const double fraction = static_cast<double>(random.Next() >> 11) * 0x1p-53;  // [0, 1)
    cases.push_back({std::ldexp(1 + fraction, random.Between(-60, 60)),
                     static_cast<double>(random.Between(-1 << 20, 1 << 20)) * 0x1p-17});
  }
  for (const Case& c : cases) {
    mpfr_set_d(base.get(), c.base, MPFR_RNDN);
    mpfr_set_d(exponent.get(), c.exponent, MPFR_RNDN);
    mpfr_pow(truth.get(), base.get(), exponent.get(), MPFR_RNDN);
    ASSERT_EQ(CanonicalPow(c.base, c.exponent), truth.ToDouble())
        << std::hexfloat << c.base << "^" << c.exponent;
  }
}

// Entries of the table that are not the correctly rounded cosine and sine.
int CountWrong(int32_t rope_dim, double theta, int32_t positions) {
  const RopeTable table({.dim = rope_dim, .theta = theta}, positions);
  int wrong = 0;
  for (int32_t i = 0; i < rope_dim / 2; ++i) {
    Big angle, step_cos, step_sin, cos, sin, next, term;
    mpfr_set_si(term.get(), -2L * i, MPFR_RNDN);
    mpfr_div_si(term.get(), term.get(), rope_dim, MPFR_RNDN);
    mpfr_set_d(angle.get(), theta, MPFR_RNDN);
    mpfr_pow(angle.get(), angle.get(), term.get(), MPFR_RNDN);
    mpfr_sin_cos(step_sin.get(), step_cos.get(), angle.get(), MPFR_RNDN);
    mpfr_set_ui(cos.get(), 1, MPFR_RNDN);
    mpfr_set_ui(sin.get(), 0, MPFR_RNDN);
    for (int32_t p = 0; p < positions; ++p) {
      const auto at = static_cast<size_t>(i);
      wrong += table.cos(p)[at] == cos.ToFloat() ? 0 : 1;
      wrong += table.sin(p)[at] == sin.ToFloat() ? 0 : 1;
      // One more turn by the step, in 200 bits: the error stays below 2^-180.
      mpfr_fmms(next.get(), cos.get(), step_cos.get(), sin.get(), step_sin.get(), MPFR_RNDN);
      mpfr_fmma(sin.get(), sin.get(), step_cos.get(), cos.get(), step_sin.get(), MPFR_RNDN);
      mpfr_swap(cos.get(), next.get());
    }
  }
  return wrong;
}

TEST(RopeTableTest, EveryEntryIsCorrectlyRounded) {
  for (double theta : {10000.0, 500000.0, 1e6}) {
    for (int32_t rope_dim : {8, 64, 80, 128}) {
      EXPECT_EQ(CountWrong(rope_dim, theta, 4100), 0) << theta << " over " << rope_dim;
    }
  }
  EXPECT_EQ(CountWrong(2, 10000.0, 200000), 0) << "angles up to 200000 radians";
}

// YaRN in the words of its paper, 200 bits wide: pairs that turn more than 32 times in the original
// context keep their frequency, those that turn less than once have it divided.
TEST(RopeTableTest, YarnIsThePapersFunctionCorrectlyRounded) {
  for (const auto& [dim, original, factor, attention] :
       {std::tuple{128, 32768.0, 4.0, 1.0}, {64, 4096.0, 16.0, 1.0}, {24, 64.0, 4.0, 0.75}}) {
    const RopeFrequencies rope = {.dim = dim,
                                  .theta = 10000.0,
                                  .yarn = YarnScaling{.factor = factor, .original = original},
                                  .attention = attention};
    const RopeTable table(rope, 2100);
    const auto pair_of = [&](double turns) {
      return dim * std::log(original / (turns * 2 * M_PI)) / (2 * std::log(10000.0));
    };
    const double low = std::max(0.0, std::floor(pair_of(32)));
    const double high = std::min(dim - 1.0, std::ceil(pair_of(1)));
    const double scale = attention * (0.1 * std::log(factor) + 1);
    Big frequency, angle, exponent, cos, sin;
    int wrong = 0;
    for (int32_t i = 0; i < dim / 2; ++i) {
      mpfr_set_si(exponent.get(), -2L * i, MPFR_RNDN);
      mpfr_div_si(exponent.get(), exponent.get(), dim, MPFR_RNDN);
      mpfr_set_d(frequency.get(), 10000.0, MPFR_RNDN);
      mpfr_pow(frequency.get(), frequency.get(), exponent.get(), MPFR_RNDN);
      const double divided = std::clamp((i - low) / (high - low), 0.0, 1.0);
      mpfr_mul_d(frequency.get(), frequency.get(), divided / factor + (1 - divided), MPFR_RNDN);
      for (int32_t p = 0; p < 2100; p += 7) {
        mpfr_mul_si(angle.get(), frequency.get(), p, MPFR_RNDN);
        mpfr_sin_cos(sin.get(), cos.get(), angle.get(), MPFR_RNDN);
        mpfr_mul_d(cos.get(), cos.get(), scale, MPFR_RNDN);
        mpfr_mul_d(sin.get(), sin.get(), scale, MPFR_RNDN);
        const auto at = static_cast<size_t>(i);
        wrong += table.cos(p)[at] == cos.ToFloat() ? 0 : 1;
        wrong += table.sin(p)[at] == sin.ToFloat() ? 0 : 1;
      }
    }
    // The test's own weights and scale are doubles: a tie comes near enough once in some thousands.
    EXPECT_LE(wrong, 8) << dim;
  }
}

TEST(RopeTableTest, AnAttentionFactorStretchesWhatIsRotated) {
  const RopeTable plain({.dim = 6, .theta = 10000.0}, 3);
  const RopeTable doubled({.dim = 6, .theta = 10000.0, .attention = 2}, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(doubled.cos(2)[i], 2 * plain.cos(2)[i]);
    EXPECT_EQ(doubled.sin(2)[i], 2 * plain.sin(2)[i]);
  }
}

TEST(RopeTableTest, RowsAreWhereTheyShouldBe) {
  const RopeTable table({.dim = 6, .theta = 10000.0}, 3);
  EXPECT_EQ(table.cos(0).size(), 3u);
  EXPECT_EQ(table.sin(2).size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(table.cos(0)[i], 1.0f);
    EXPECT_EQ(table.sin(0)[i], 0.0f);
  }
  EXPECT_EQ(table.sin(1)[0], static_cast<float>(std::sin(1.0)));
  EXPECT_EQ(table.cos(2)[0], static_cast<float>(std::cos(2.0)));
  EXPECT_DEATH(table.cos(3), "position 3 of 3");
  EXPECT_DEATH(table.sin(-1), "position -1 of 3");
  EXPECT_DEATH(RopeTable({.dim = 5, .theta = 10000.0}, 3), "RoPE of 5");
  EXPECT_DEATH(RopeTable({.dim = 6, .theta = 0.0}, 3), "theta 0");
  EXPECT_DEATH(RopeTable({.dim = 6, .theta = 10000.0}, 0), "0 positions");
  const RopeFrequencies three = {.dim = 8, .theta = 10.0, .factors = {1, 1, 1}};
  EXPECT_DEATH(RopeTable(three, 3), "3 factors of 4 pairs");
  const RopeFrequencies yarn = {.dim = 8, .theta = 10.0, .yarn = YarnScaling{.factor = 4}};
  EXPECT_DEATH(RopeTable(yarn, 3), "YaRN by 4 from 0 positions");
}

TEST(MathDeathTest, ArgumentsOutsideTheDomain) {
  EXPECT_DEATH(CanonicalSinCos(0x1.00000001p+31), "radians");
  EXPECT_DEATH(CanonicalSinCos(std::nan("")), "radians");
  EXPECT_DEATH(CanonicalPow(0.0, 2.0), "0\\^2");
  EXPECT_DEATH(CanonicalPow(-1.0, 2.0), "-1\\^2");
  EXPECT_DEATH(CanonicalPow(10.0, 400.0), "leaves the range");
}

}  // namespace
}  // namespace lockstep
