#include "engine/math.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "caches/check.h"
#include "engine/kernels/bits.h"
#include "engine/kernels/double_double.h"
#include "engine/kernels/exp.h"
#include "engine/kernels/tanh.h"
#include "engine/rope_turn.h"

#if FLT_EVAL_METHOD != 0
#error "engine/ARITHMETIC.md needs float expressions evaluated in binary32"
#endif

namespace lockstep {
namespace {

using internal::DoubleDouble;
using internal::TwoSum;

constexpr double kMaxRadians = 0x1p+31;

// A double-double rounded once to binary32.
float RoundOnce(DoubleDouble value) {
  return static_cast<float>(internal::AddRoundToOdd(value.hi, value.lo));
}

}  // namespace

float CanonicalExp(float x) { return internal::Exp(x); }
float CanonicalTanh(float x) { return internal::Tanh(x); }

SinCos CanonicalSinCos(double radians) {
  LS_CHECK(radians >= -kMaxRadians && radians <= kMaxRadians, "{} radians", radians);
  const internal::SinCosPair pair = internal::SinCosOf({radians});
  return {.sin = pair.sin.hi, .cos = pair.cos.hi};
}

double CanonicalPow(double base, double exponent) {
  LS_CHECK(base > 0 && std::isfinite(base) && std::isfinite(exponent), "{}^{}", base, exponent);
  return internal::Pow(base, {exponent}).hi;
}

double CanonicalLog(double x) {
  LS_CHECK(x > 0 && std::isfinite(x), "log({})", x);
  return internal::Log(x).hi;
}

namespace {

// The pair that turns `turns` times within the original context, as a number between pairs.
double PairOfTurns(const RopeFrequencies& rope, double turns) {
  constexpr double kTurn = 0x1.921fb54442d18p+2;  // 2 pi
  const DoubleDouble length = internal::Log(rope.yarn->original / (turns * kTurn));
  const DoubleDouble base = internal::Log(rope.theta);
  return (length * DoubleDouble{static_cast<double>(rope.dim)} / (base + base)).hi;
}

// What YaRN multiplies the frequencies by: from the first pair that is divided at all to the first
// that is divided in full.
std::vector<DoubleDouble> YarnWeights(const RopeFrequencies& rope) {
  const auto last = static_cast<double>(rope.dim - 1);
  // Bounds first, which keep the conversions to integers in range.
  const double low = std::clamp(PairOfTurns(rope, rope.yarn->fast), 0.0, last);
  const double high = std::clamp(PairOfTurns(rope, rope.yarn->slow), 0.0, last);
  const auto begin = static_cast<double>(static_cast<int64_t>(low));
  auto end = static_cast<double>(static_cast<int64_t>(high));
  if (end < high) end += 1.0;
  const double width = end > begin ? end - begin : 0.001;
  std::vector<DoubleDouble> weights;
  for (int32_t i = 0; i < rope.dim / 2; ++i) {
    const double divided = std::clamp((static_cast<double>(i) - begin) / width, 0.0, 1.0);
    weights.push_back(DoubleDouble{divided} / DoubleDouble{rope.yarn->factor} +
                      TwoSum(1.0, -divided));
  }
  return weights;
}

// Of cosines and sines. With YaRN equation 22 of the paper, of queries and keys each.
DoubleDouble AttentionFactor(const RopeFrequencies& rope) {
  DoubleDouble factor = {rope.attention};
  if (rope.yarn) {
    factor = factor * (DoubleDouble{1.0} + internal::Log(rope.yarn->factor) / DoubleDouble{10.0});
  }
  return factor;
}

// Radians a position.
std::vector<DoubleDouble> Frequencies(const RopeFrequencies& rope) {
  const auto half = static_cast<size_t>(rope.dim / 2);
  LS_CHECK(rope.factors.empty() || rope.factors.size() == half, "{} factors of {} pairs",
           rope.factors.size(), half);
  std::vector<DoubleDouble> weights;
  if (rope.yarn) weights = YarnWeights(rope);
  std::vector<DoubleDouble> frequencies(half);
  for (size_t i = 0; i < half; ++i) {
    const DoubleDouble exponent =
        DoubleDouble{-2.0 * static_cast<double>(i)} / DoubleDouble{static_cast<double>(rope.dim)};
    DoubleDouble& frequency = frequencies[i];
    frequency = internal::Pow(rope.theta, exponent);
    if (rope.linear != 1.0) frequency = frequency / DoubleDouble{rope.linear};
    if (rope.yarn) frequency = frequency * weights[i];
    if (!rope.factors.empty()) {
      frequency = frequency / DoubleDouble{static_cast<double>(rope.factors[i])};
    }
  }
  return frequencies;
}

// The same, once it is checked that the angles up to that many positions can be computed.
std::vector<DoubleDouble> CheckedFrequencies(const RopeFrequencies& rope, int32_t num_positions) {
  LS_CHECK(rope.dim > 0 && rope.dim % 2 == 0 && rope.theta > 0 && std::isfinite(rope.theta) &&
               rope.linear > 0 && rope.attention > 0 && num_positions > 0,
           "RoPE of {} dimensions, theta {}, divided by {}, {} positions", rope.dim, rope.theta,
           rope.linear, num_positions);
  LS_CHECK(!rope.yarn || (rope.theta > 1 && rope.yarn->factor > 0 && rope.yarn->original > 0 &&
                          rope.yarn->fast > 0 && rope.yarn->slow > 0),
           "YaRN by {} from {} positions", rope.yarn->factor, rope.yarn->original);
  std::vector<DoubleDouble> frequencies = Frequencies(rope);
  for (const DoubleDouble& frequency : frequencies) {
    LS_CHECK(frequency.hi * num_positions <= kMaxRadians, "{} radians a position", frequency.hi);
  }
  return frequencies;
}

}  // namespace

RopeTurn RopeTurnOver(const RopeFrequencies& rope, int32_t distance) {
  LS_CHECK(distance >= 0 && distance < INT32_MAX, "a turn over {} positions", distance);
  RopeTurn turn;
  for (const DoubleDouble& frequency : CheckedFrequencies(rope, distance + 1)) {
    const internal::SinCosPair pair =
        internal::SinCosOf(frequency * DoubleDouble{static_cast<double>(distance)});
    turn.cos.push_back(RoundOnce(pair.cos));
    turn.sin.push_back(RoundOnce(pair.sin));
  }
  return turn;
}

RopeTable::RopeTable(const RopeFrequencies& rope, int32_t num_positions)
    : half_(rope.dim / 2), num_positions_(num_positions) {
  const std::vector<DoubleDouble> frequencies = CheckedFrequencies(rope, num_positions);
  const auto half = static_cast<size_t>(half_);
  const DoubleDouble attention = AttentionFactor(rope);
  const bool scales = rope.yarn || rope.attention != 1.0;
  table_.resize(static_cast<size_t>(num_positions) * 2 * half);
  for (size_t p = 0; p < static_cast<size_t>(num_positions); ++p) {
    float* row = &table_[p * 2 * half];
    for (size_t i = 0; i < half; ++i) {
      const internal::SinCosPair pair =
          internal::SinCosOf(frequencies[i] * DoubleDouble{static_cast<double>(p)});
      row[i] = RoundOnce(scales ? pair.cos * attention : pair.cos);
      row[half + i] = RoundOnce(scales ? pair.sin * attention : pair.sin);
    }
  }
}

std::span<const float> RopeTable::cos(int32_t position) const {
  LS_CHECK(position >= 0 && position < num_positions_, "position {} of {}", position,
           num_positions_);
  const auto half = static_cast<size_t>(half_);
  return std::span(table_).subspan(static_cast<size_t>(position) * 2 * half, half);
}

std::span<const float> RopeTable::sin(int32_t position) const {
  LS_CHECK(position >= 0 && position < num_positions_, "position {} of {}", position,
           num_positions_);
  const auto half = static_cast<size_t>(half_);
  return std::span(table_).subspan(static_cast<size_t>(position) * 2 * half + half, half);
}

void CheckFloatingPointEnvironment() {
  // Volatile: the operations run here and now, not in the compiler.
  volatile float one = 1.0f;
  volatile float half_ulp = 0x1p-24f;
  LS_CHECK(one + half_ulp == 1.0f && one + 3 * half_ulp == 0x1.000004p+0f &&
               -one - half_ulp == -1.0f && -one - 3 * half_ulp == -0x1.000004p+0f,
           "rounding of float is not to nearest even");
  volatile double one64 = 1.0;
  volatile double half_ulp64 = 0x1p-53;
  LS_CHECK(one64 + half_ulp64 == 1.0 && one64 + 3 * half_ulp64 == 0x1.0000000000002p+0 &&
               -one64 - half_ulp64 == -1.0,
           "rounding of double is not to nearest even");
  volatile float smallest_normal = 0x1p-126f;
  const float halved = smallest_normal * 0.5f;
  LS_CHECK(internal::BitsOf(halved) == 0x00400000u, "subnormal results are flushed to zero");
  volatile float subnormal = internal::FloatOf(1u);
  LS_CHECK(subnormal * 0x1p+24f == 0x1p-125f, "subnormal operands are read as zero");
  volatile double subnormal64 = internal::DoubleOf(1u);
  LS_CHECK(subnormal64 * 0x1p+53 == 0x1p-1021, "subnormal doubles are read as zero");
#if defined(__aarch64__)
  // What the kernels of neon_table.h widen halves with.
  volatile auto half = __builtin_bit_cast(__fp16, uint16_t{0x7c00});
  LS_CHECK(static_cast<float>(half) == __builtin_inff(), "binary16 is read without infinities");
#endif
  volatile float a = 0x1.001p+0f;  // 1 + 2^-12: the square needs 25 bits
  LS_CHECK(a * a - 0x1.002p+0f == 0.0f, "the compiler contracts a * b + c");
}

}  // namespace lockstep
