#include <algorithm>
#include <cmath>
#include <numbers>

#include "oracle/reference/ops.h"
#include "oracle/reference/rounding.h"

namespace lockstep::oracle {
namespace {

// What YaRN makes of a frequency: by equations 17 to 20 of https://arxiv.org/abs/2309.00071 it is
// kept, divided or between both, by the pair's place between those that turn `slow` and `fast`
// times.
double YarnRatio(const RopeShape& shape, int64_t pair) {
  if (shape.yarn == 1) return 1;
  const auto dim = static_cast<double>(shape.rope_dim);
  const auto place = [&](double turns) {
    return dim * std::log(shape.yarn_context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(shape.theta));
  };
  const double low = std::max(std::floor(place(shape.yarn_fast)), 0.0);
  const double high = std::min(std::ceil(place(shape.yarn_slow)), dim - 1);
  const double ramp = (static_cast<double>(pair) - low) / std::max(high - low, 0.001);
  const double interpolated = std::clamp(ramp, 0.0, 1.0);
  return interpolated / shape.yarn + (1 - interpolated);
}

}  // namespace

RopeShape RopeShapeOf(const Hyperparameters& hp, bool local) {
  RopeShape shape = {.head_dim = hp.head_dim,
                     .rope_dim = hp.rope_dim,
                     .theta = hp.rope_theta,
                     .halves = hp.rope_halves};
  if (local && hp.local_theta != 0) {
    shape.theta = hp.local_theta;
    return shape;
  }
  shape.linear = hp.rope_linear;
  shape.factors = hp.rope_factors;
  shape.yarn = hp.yarn;
  shape.yarn_context = hp.yarn_context;
  shape.yarn_fast = hp.yarn_fast;
  shape.yarn_slow = hp.yarn_slow;
  shape.stretch = hp.rope_stretch;
  return shape;
}

Rows Turned(const Rows& x, int64_t by, RopeShape shape) {
  shape.stretch = 1 / (0.1 * std::log(shape.yarn) + 1);  // what YaRN stretches by itself
  return Rope(x, std::vector<int64_t>(static_cast<size_t>(x.n), by), shape);
}

Rows Rope(const Rows& x, std::span<const int64_t> positions, const RopeShape& shape) {
  Rows y = x;
  const int64_t half = shape.rope_dim / 2;
  const double length = shape.stretch * (0.1 * std::log(shape.yarn) + 1);
  for (int64_t t = 0; t < x.n; ++t) {
    for (int64_t head = 0; head < x.width; head += shape.head_dim) {
      for (int64_t i = 0; i < half; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(shape.rope_dim);
        const double stretch =
            shape.linear * (shape.factors.empty() ? 1.0 : shape.factors[static_cast<size_t>(i)]);
        const double angle = static_cast<double>(positions[static_cast<size_t>(t)]) *
                             std::pow(shape.theta, exponent) * YarnRatio(shape, i) / stretch;
        const double c = length * std::cos(angle), s = length * std::sin(angle);
        const int64_t at_a = head + (shape.halves ? i : 2 * i);
        const int64_t at_b = head + (shape.halves ? i + half : 2 * i + 1);
        const double a = x.row(t)[at_a], b = x.row(t)[at_b];
        y.row(t)[at_a] = a * c - b * s;
        y.row(t)[at_b] = a * s + b * c;
        // Both tables are rounded, one product is, and the fma.
        const auto bound = [&](double first, double second, double result) {
          return (std::fabs(first) + 2 * std::fabs(second) + std::fabs(result)) * kUnit *
                     kSecondOrder +
                 kTiny;
        };
        const double bound_a = x.bound(t)[at_a], bound_b = x.bound(t)[at_b];
        y.bound(t)[at_a] =
            bound(a * c, b * s, y.row(t)[at_a]) + bound_a * std::fabs(c) + bound_b * std::fabs(s);
        y.bound(t)[at_b] =
            bound(a * s, b * c, y.row(t)[at_b]) + bound_a * std::fabs(s) + bound_b * std::fabs(c);
      }
    }
  }
  return y;
}

}  // namespace lockstep::oracle
