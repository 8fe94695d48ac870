// Unevaluated sums of two doubles, about 106 bits, for tables that must be right once rounded.
// Basic IEEE operations only (no fma). Dekker, "A floating-point technique for extending the
// available precision", Numer. Math. 18, 1971; Knuth, TAOCP vol. 2, 4.2.2.
#ifndef LOCKSTEP_ENGINE_KERNELS_DOUBLE_DOUBLE_H_
#define LOCKSTEP_ENGINE_KERNELS_DOUBLE_DOUBLE_H_

namespace lockstep::internal {

struct DoubleDouble {
  double hi = 0;  // hi + lo rounded to double
  double lo = 0;
};

// Exact: hi + lo = a + b.
inline DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// Exact when |a| >= |b| or a is 0.
inline DoubleDouble QuickTwoSum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// Exact: hi + lo = a * b. REQUIRES: both below 2^990, the product's last bit above 2^-1074.
inline DoubleDouble TwoProduct(double a, double b) {
  constexpr double kSplit = 0x1.0000002p+27;  // 2^27 + 1
  const double a_high = kSplit * a - (kSplit * a - a);
  const double b_high = kSplit * b - (kSplit * b - b);
  const double a_low = a - a_high;
  const double b_low = b - b_high;
  const double product = a * b;
  const double error =
      ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
  return {product, error};
}

inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  DoubleDouble s = TwoSum(a.hi, b.hi);
  const DoubleDouble t = TwoSum(a.lo, b.lo);
  s = QuickTwoSum(s.hi, s.lo + t.hi);
  return QuickTwoSum(s.hi, s.lo + t.lo);
}

inline DoubleDouble operator-(DoubleDouble a) { return {-a.hi, -a.lo}; }
inline DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + -b; }

inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble p = TwoProduct(a.hi, b.hi);
  return QuickTwoSum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double q1 = a.hi / b.hi;
  DoubleDouble rest = a - b * DoubleDouble{q1};
  const double q2 = rest.hi / b.hi;
  rest = rest - b * DoubleDouble{q2};
  return QuickTwoSum(q1, q2) + DoubleDouble{rest.hi / b.hi};
}

// The natural logarithm. REQUIRES: x > 0 and finite.
DoubleDouble Log(double x);

// base^exponent. REQUIRES: base > 0 and finite, |exponent * log(base)| < 708.
DoubleDouble Pow(double base, DoubleDouble exponent);

struct SinCosPair {
  DoubleDouble sin;
  DoubleDouble cos;
};
// REQUIRES: |radians| <= 2^31.
SinCosPair SinCosOf(DoubleDouble radians);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_DOUBLE_DOUBLE_H_
