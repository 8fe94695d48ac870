#include "oracle/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "caches/check.h"
#include "oracle/reference/blocks.h"
#include "oracle/reference/rounding.h"

namespace lockstep::oracle {
namespace {

double Up(int64_t value, int64_t divisor) {
  return static_cast<double>((value + divisor - 1) / divisor);
}

// Roundings on the way of one term through tree16 over n terms, and through seg256.
double Tree16Depth(int64_t n) { return Up(n, 16) + 4; }
double Seg256Depth(int64_t n) {
  return static_cast<double>(std::min<int64_t>(n, 256)) + Up(n, 256);
}

// One row rounded to 8-bit codes in blocks of 32, as numbers: code * d.
std::vector<double> RoundToCodes(const double* x, int64_t n, Codes codes) {
  std::vector<double> rounded;
  for (int64_t begin = 0; begin < n; begin += 32) {
    float amax = 0;
    for (int64_t i = begin; i < begin + 32; ++i) {
      amax = std::max(amax, std::fabs(static_cast<float>(x[i])));
    }
    const float d = amax / 127.0f;
    const float id = amax == 0 ? 0.0f : 127.0f / amax;
    for (int64_t i = begin; i < begin + 32; ++i) {
      const float scaled = static_cast<float>(x[i]) * id;
      const double code = codes == Codes::kNearest ? std::nearbyint(scaled) : std::trunc(scaled);
      rounded.push_back(std::clamp(code, -127.0, 127.0) * d);
    }
  }
  return rounded;
}

// One output: the sum, and its bound.
std::pair<double, double> DotFloat(const double* w, const double* x, int64_t n) {
  double sum = 0, magnitude = 0;
  for (int64_t k = 0; k < n; ++k) {
    sum += w[k] * x[k];
    magnitude += std::fabs(w[k] * x[k]);
  }
  return {sum, Seg256Depth(n) * kUnit * magnitude};
}

// The sum of a sub-block's integers is exact. Its product with both scales, that of a constant part
// with the sum of activations, and the chain over both, are not.
std::pair<double, double> DotCodes(GgmlType type, const double* w, const double* constants,
                                   const double* x, int64_t n) {
  const int64_t run = ElementsOfAScale(type);
  const int64_t steps = 32 / run * (HasConstants(type) ? 2 : 1);  // of the chain, a block of 32
  double sum = 0, magnitude = 0;
  for (int64_t begin = 0; begin < n; begin += run) {
    double integers = 0, constant = 0;
    for (int64_t k = begin; k < begin + run; ++k) {
      integers += (w[k] - constants[k]) * x[k];
      constant += constants[k] * x[k];
    }
    sum += integers + constant;
    magnitude += std::fabs(integers) + std::fabs(constant);
  }
  const double depth = static_cast<double>(std::min<int64_t>(n / 32, 8) * steps) + Up(n, 256) + 1;
  return {sum, depth * kUnit * magnitude};
}

}  // namespace

Rows ByPosition(const Rows& x, std::span<const int64_t> positions) {
  Rows all(positions.back() + 1, x.width);
  for (int64_t t = 0; t < x.n; ++t) {
    std::copy_n(x.row(t), x.width, all.row(positions[static_cast<size_t>(t)]));
  }
  return all;
}

Rows Exact(Rows rows) {
  std::ranges::fill(rows.bounds, 0.0);
  return rows;
}

Rows RmsNorm(const Rows& x, const std::vector<double>& weight, double eps) {
  const auto n = static_cast<int64_t>(weight.size());
  LS_CHECK(n > 0 && x.width % n == 0, "rows of {} normed in runs of {}", x.width, n);
  Rows y(x.n, x.width);
  for (int64_t begin = 0; begin < x.n * x.width; begin += n) {
    const double* in = x.values.data() + begin;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += in[i] * in[i];
    const double r = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
    // All terms are positive, so their errors stay relative; the root halves them.
    const double relative = ((Tree16Depth(n) + 2) / 2 + 4) * kUnit * kSecondOrder;
    for (int64_t i = 0; i < n; ++i) {
      const double value = in[i] * r * weight[static_cast<size_t>(i)];
      y.values[static_cast<size_t>(begin + i)] = value;
      y.bounds[static_cast<size_t>(begin + i)] = relative * std::fabs(value) + kTiny;
    }
  }
  return y;
}

Rows RmsNormEpsOutside(const Rows& x, const std::vector<double>& weight, double eps) {
  // 1 / (sqrt(m) + eps) is 1 / sqrt(m + (2 sqrt(m) + eps) eps): another eps for each row.
  Rows y = RmsNorm(x, weight, 0);
  for (int64_t t = 0; t < x.n; ++t) {
    double sum = 0;
    for (int64_t i = 0; i < x.width; ++i) sum += x.row(t)[i] * x.row(t)[i];
    const double root = std::sqrt(sum / static_cast<double>(x.width));
    for (int64_t i = 0; i < x.width; ++i) y.row(t)[i] *= root / (root + eps);
  }
  return y;
}

Rows RmsNormOf(const Rows& x, const std::vector<double>& weight, double eps) {
  Rows y = RmsNorm(x, weight, eps);
  const auto n = static_cast<int64_t>(weight.size());
  for (int64_t begin = 0; begin < x.n * x.width; begin += n) {
    const double* in = x.values.data() + begin;
    const double* bounds = x.bounds.data() + begin;
    double sum = 0, change = 0;  // of squares, and how far the bounds may move half of it
    for (int64_t i = 0; i < n; ++i) {
      sum += in[i] * in[i];
      change += std::fabs(in[i]) * bounds[i];
    }
    const double mean = sum / static_cast<double>(n) + eps;
    const double r = 1 / std::sqrt(mean);
    const double relative = change / static_cast<double>(n) / mean;
    for (int64_t i = 0; i < n; ++i) {
      y.bounds[static_cast<size_t>(begin + i)] += (bounds[i] + std::fabs(in[i]) * relative) * r *
                                                  std::fabs(weight[static_cast<size_t>(i)]) *
                                                  kSecondOrder;
    }
  }
  return y;
}

Rows MatMul(const Matrix& w, const Rows& x, Codes codes) {
  LS_CHECK(w.cols() == x.width, "a matrix of {} columns and rows of {}", w.cols(), x.width);
  const bool rounds = w.quantized() && codes != Codes::kNone;
  std::vector<std::vector<double>> input;  // [n][width]
  for (int64_t t = 0; t < x.n; ++t) {
    input.push_back(rounds ? RoundToCodes(x.row(t), x.width, codes)
                           : std::vector<double>(x.row(t), x.row(t) + x.width));
  }
  Rows y(x.n, w.rows());
  std::vector<double> weights, constants;
  for (int64_t r = 0; r < w.rows(); ++r) {
    w.Row(r, &weights, &constants);
    for (int64_t t = 0; t < x.n; ++t) {
      const double* in = input[static_cast<size_t>(t)].data();
      const auto [sum, bound] =
          rounds ? DotCodes(w.type(), weights.data(), constants.data(), in, x.width)
                 : DotFloat(weights.data(), in, x.width);
      y.row(t)[r] = sum;
      y.bound(t)[r] = bound * kSecondOrder + kTiny;
    }
  }
  return y;
}

void AddBias(const std::vector<double>& bias, Rows* y) {
  if (bias.empty()) return;
  for (int64_t t = 0; t < y->n; ++t) {
    for (int64_t i = 0; i < y->width; ++i) {
      y->row(t)[i] += bias[static_cast<size_t>(i)];
      y->bound(t)[i] += kUnit * std::fabs(y->row(t)[i]) * kSecondOrder;
    }
  }
}

Rows Scaled(double factor, Rows y) {
  if (factor == 1) return y;
  for (size_t i = 0; i < y.values.size(); ++i) {
    y.values[i] *= factor;
    // The factor may be a rounded quotient itself.
    y.bounds[i] =
        y.bounds[i] * std::fabs(factor) + 2 * kUnit * std::fabs(y.values[i]) * kSecondOrder;
  }
  return y;
}

Rows Residual(const Rows& x, const Rows& y) {
  Rows sum(x.n, x.width);
  for (size_t i = 0; i < sum.values.size(); ++i) {
    sum.values[i] = x.values[i] + y.values[i];
    sum.bounds[i] = y.bounds[i] + kUnit * std::fabs(sum.values[i]) * kSecondOrder;
  }
  return sum;
}

namespace {

// One head of one query, of the rows that it sees: weights[p] sums to 1, and errors[p] bounds the
// relative error of each exponential, up to a factor that all of them share and that the division
// takes out again.
struct Softmax {
  std::vector<double> weights;
  std::vector<double> errors;
};

// Of rows [from, visible).
Softmax SoftmaxOf(const AttentionInput& input, const double* q, const Rows& keys, int64_t offset,
                  int64_t from, int64_t visible) {
  Softmax softmax;
  std::vector<double> errors;  // of the scores, in units
  for (int64_t p = from; p < visible; ++p) {
    const double* k = keys.row(p) + offset;
    double dot = 0, magnitude = 0;
    for (int64_t d = 0; d < input.head_dim; ++d) {
      dot += q[d] * k[d];
      magnitude += std::fabs(q[d] * k[d]);
    }
    double score = dot * input.scale;
    double error = (Tree16Depth(input.head_dim) + 3) * magnitude * input.scale;
    if (input.cap != 0) {
      error += std::fabs(score);  // the division; tanh is no steeper than 1
      score = input.cap * std::tanh(score / input.cap);
      error += 5 * std::fabs(score);  // tanh (2 ulp) and the product
    }
    softmax.weights.push_back(score);
    errors.push_back(error);
  }
  const double top = *std::ranges::max_element(softmax.weights);
  double sum = 0;
  for (size_t p = 0; p < softmax.weights.size(); ++p) {
    const double below = softmax.weights[p] - top;
    // The dot product, the rounded scale and its product, the cap; the subtraction; the exponential
    // (1 ulp).
    softmax.errors.push_back((errors[p] + std::fabs(below) + 2) * kUnit);
    softmax.weights[p] = std::exp(below);
    sum += softmax.weights[p];
  }
  for (double& weight : softmax.weights) weight /= sum;
  return softmax;
}

}  // namespace

Rows Attention(const AttentionInput& input, const Rows& query, const Rows& keys,
               const Rows& values) {
  Rows out(query.n, query.width);
  const int64_t group = input.heads / input.kv_heads;
  for (int64_t t = 0; t < query.n; ++t) {
    const int64_t visible = input.visible[static_cast<size_t>(t)];
    const int64_t from = input.window > 0 ? std::max<int64_t>(0, visible - input.window) : 0;
    for (int64_t h = 0; h < input.heads; ++h) {
      const int64_t kv_head = input.head_modulo ? h % input.kv_heads : h / group;
      const int64_t offset = kv_head * input.head_dim;
      const double* q = query.row(t) + h * input.head_dim;
      const Softmax softmax = SoftmaxOf(input, q, keys, offset, from, visible);
      double shared = Tree16Depth(visible) + 1;  // of the sum, and the division, in units
      for (size_t p = 0; p < softmax.weights.size(); ++p) {
        shared += softmax.weights[p] * softmax.errors[p] / kUnit;
      }
      for (int64_t d = 0; d < input.head_dim; ++d) {
        double sum = 0, error = 0;
        for (int64_t p = from; p < visible; ++p) {
          const auto at = static_cast<size_t>(p - from);
          const double term = softmax.weights[at] * values.row(p)[offset + d];
          sum += term;
          error += std::fabs(term) * (softmax.errors[at] + Seg256Depth(visible) * kUnit);
        }
        out.row(t)[h * input.head_dim + d] = sum;
        out.bound(t)[h * input.head_dim + d] =
            (error + std::fabs(sum) * shared * kUnit) * kSecondOrder + kTiny;
      }
    }
  }
  return out;
}

Rows SwiGlu(const Rows& gate, const Rows& up) {
  Rows y(gate.n, gate.width);
  constexpr double kSteepest = 1.1;  // |d silu(g) / dg| stays below
  for (size_t i = 0; i < y.values.size(); ++i) {
    const double g = gate.values[i];
    const double silu = g / (1 + std::exp(-g));
    y.values[i] = silu * up.values[i];
    // The exponential (1 ulp), the sum, the division, the product.
    y.bounds[i] = (kSteepest * gate.bounds[i] * std::fabs(up.values[i]) +
                   std::fabs(silu) * up.bounds[i] + 6 * kUnit * std::fabs(y.values[i])) *
                      kSecondOrder +
                  kTiny * (1 + std::fabs(up.values[i]));
  }
  return y;
}

Rows GeGlu(const Rows& gate, const Rows& up) {
  Rows y(gate.n, gate.width);
  constexpr double kSteepest = 1.13;  // |d gelu(g) / dg| stays below
  const double root = std::sqrt(2 / std::numbers::pi);
  for (size_t i = 0; i < y.values.size(); ++i) {
    const double g = gate.values[i];
    const double inner = root * (g + 0.044715 * g * g * g);
    const double gelu = 0.5 * g * (1 + std::tanh(inner));
    y.values[i] = gelu * up.values[i];
    // The inner sum in five roundings, which bend the sigmoid by as much as it is not 1; the
    // exponential (1 ulp), the sum, the division, the product.
    const double bent = 1 - 0.5 * (1 + std::tanh(inner));
    const double relative = (5 * std::fabs(2 * inner) * bent + 6) * kUnit;
    y.bounds[i] = (kSteepest * gate.bounds[i] * std::fabs(up.values[i]) +
                   std::fabs(gelu) * up.bounds[i] + relative * std::fabs(y.values[i])) *
                      kSecondOrder +
                  kTiny * (1 + std::fabs(up.values[i]));
  }
  return y;
}

Rows Capped(double cap, Rows y) {
  if (cap == 0) return y;
  for (size_t i = 0; i < y.values.size(); ++i) {
    const double before = std::fabs(y.values[i]);
    y.values[i] = cap * std::tanh(y.values[i] / cap);
    // The division; tanh (2 ulp) and the product.
    y.bounds[i] += (before + 5 * std::fabs(y.values[i])) * kUnit * kSecondOrder;
  }
  return y;
}

}  // namespace lockstep::oracle
