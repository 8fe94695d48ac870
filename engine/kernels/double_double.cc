#include "engine/kernels/double_double.h"

#include <cstdint>

#include "caches/check.h"
#include "engine/kernels/bits.h"

namespace lockstep::internal {
namespace {

// Adding 1.5 * 2^52 rounds to an integer, half to even, for |x| < 2^51.
constexpr double kRoundMagic64 = 0x1.8p+52;

constexpr DoubleDouble kLn2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

// pi / 2 to 160 bits.
constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;
constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;

// 2^n for -1022 <= n <= 1023.
double PowerOfTwo(int64_t n) { return DoubleOf(static_cast<uint64_t>(n + 1023) << 52); }

}  // namespace

// log(x) = e ln 2 + 2 atanh(f), f = (m - 1) / (m + 1), x = 2^e m, m in [sqrt(1/2), sqrt(2)).
DoubleDouble Log(double x) {
  int64_t e = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p+54;
    e = -54;
  }
  const uint64_t bits = BitsOf(x);
  e += static_cast<int64_t>(bits >> 52) - 1023;
  double m = DoubleOf((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m >= 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    e += 1;
  }
  const DoubleDouble f = DoubleDouble{m - 1.0} / TwoSum(m, 1.0);
  const DoubleDouble z = f * f;  // at most 0.0295
  DoubleDouble series = {};
  for (int j = 23; j >= 0; --j) {
    series = DoubleDouble{1.0} / DoubleDouble{static_cast<double>(2 * j + 1)} + z * series;
  }
  const DoubleDouble log_m = f * series;
  return kLn2 * DoubleDouble{static_cast<double>(e)} + (log_m + log_m);
}

DoubleDouble Pow(double base, DoubleDouble exponent) {
  const DoubleDouble y = exponent * Log(base);
  LS_CHECK(y.hi < 709.0 && y.hi > -708.0, "{}^{} leaves the range of double", base, exponent.hi);
  const double n = (y.hi * 0x1.71547652b82fep+0 + kRoundMagic64) - kRoundMagic64;
  const DoubleDouble r = y - kLn2 * DoubleDouble{n};  // at most 0.3466
  DoubleDouble series = {1.0};
  for (int j = 27; j >= 1; --j) {
    series = DoubleDouble{1.0} + (r * series) / DoubleDouble{static_cast<double>(j)};
  }
  const double scale = PowerOfTwo(static_cast<int64_t>(n) / 2);
  const double rest = PowerOfTwo(static_cast<int64_t>(n) - static_cast<int64_t>(n) / 2);
  return {series.hi * scale * rest, series.lo * scale * rest};
}

SinCosPair SinCosOf(DoubleDouble radians) {
  // r = radians - k pi / 2, |r| <= pi / 4; every product is kept exactly or far below the result.
  const double k = (radians.hi * 0x1.45f306dc9c883p-1 + kRoundMagic64) - kRoundMagic64;
  const DoubleDouble turn = TwoProduct(k, kHalfPi1);
  DoubleDouble r = TwoSum(radians.hi, -turn.hi) + TwoSum(radians.lo, -turn.lo);
  r = r - TwoProduct(k, kHalfPi2);
  r = r - DoubleDouble{k * kHalfPi3};
  const DoubleDouble z = r * r;  // at most 0.617

  // Taylor: the tails in double (their error is below 2^-63 of the result), two steps in full.
  double s = -0x1.2f49b46814157p-57;  // -1 / 19!
  s = 0x1.952c77030ad4ap-49 + z.hi * s;
  s = -0x1.ae7f3e733b81fp-41 + z.hi * s;
  s = 0x1.6124613a86d09p-33 + z.hi * s;
  s = -0x1.ae64567f544e4p-26 + z.hi * s;
  s = 0x1.71de3a556c734p-19 + z.hi * s;
  s = -0x1.a01a01a01a01ap-13 + z.hi * s;  // -1 / 7!
  DoubleDouble sin =
      DoubleDouble{0x1.1111111111111p-7, 0x1.1111111111111p-63} + z * DoubleDouble{s};
  sin = DoubleDouble{-0x1.5555555555555p-3, -0x1.5555555555555p-57} + z * sin;
  sin = r + r * (z * sin);

  double c = 0x1.e542ba4020225p-62;  // 1 / 20!
  c = -0x1.6827863b97d97p-53 + z.hi * c;
  c = 0x1.ae7f3e733b81fp-45 + z.hi * c;
  c = -0x1.93974a8c07c9dp-37 + z.hi * c;
  c = 0x1.1eed8eff8d898p-29 + z.hi * c;
  c = -0x1.27e4fb7789f5cp-22 + z.hi * c;
  c = 0x1.a01a01a01a01ap-16 + z.hi * c;
  c = -0x1.6c16c16c16c17p-10 + z.hi * c;  // -1 / 6!
  DoubleDouble cos =
      DoubleDouble{0x1.5555555555555p-5, 0x1.5555555555555p-59} + z * DoubleDouble{c};
  cos = DoubleDouble{-0.5} + z * cos;
  cos = DoubleDouble{1.0} + z * cos;

  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace lockstep::internal
