// The operations of a llama in double precision, each with a bound on how far its canonical
// binary32 form (engine/ARITHMETIC.md) may be away. u = 2^-24 is the unit roundoff of binary32.
//
// Bounds take the inputs as exact numbers unless a comment says that the inputs' own bounds are
// carried on.
#ifndef LOCKSTEP_ORACLE_REFERENCE_OPS_H_
#define LOCKSTEP_ORACLE_REFERENCE_OPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/reference/weights.h"

namespace lockstep::oracle {

struct Rows {
  int64_t n = 0;
  int64_t width = 0;
  std::vector<double> values;  // [n, width]
  std::vector<double> bounds;  // [n, width]

  Rows() = default;
  Rows(int64_t n_rows, int64_t row_width)
      : n(n_rows),
        width(row_width),
        values(static_cast<size_t>(n * width)),
        bounds(static_cast<size_t>(n * width)) {}

  double* row(int64_t i) { return values.data() + i * width; }
  const double* row(int64_t i) const { return values.data() + i * width; }
  double* bound(int64_t i) { return bounds.data() + i * width; }
  const double* bound(int64_t i) const { return bounds.data() + i * width; }
};

// The rows of a step where they belong, zeros between them.
Rows ByPosition(const Rows& x, std::span<const int64_t> positions);

// The same numbers, taken as exact from here on.
Rows Exact(Rows rows);

// y = x / sqrt(mean(x^2) + eps) * weight over each run of weight.size() elements: a row, or a head.
Rows RmsNorm(const Rows& x, const std::vector<double>& weight, double eps);

// A mistake: eps outside the root, x / (sqrt(mean(x^2)) + eps) * weight. Of whole rows.
Rows RmsNormEpsOutside(const Rows& x, const std::vector<double>& weight, double eps);

// RmsNorm of rows that are not exact, carrying their bounds on.
Rows RmsNormOf(const Rows& x, const std::vector<double>& weight, double eps);

// How activations are rounded to 8 bits before they meet quantized weights.
enum class Codes { kNone, kNearest, kTruncated };

// y[t, r] = sum over k of w[r, k] * x[t, k].
Rows MatMul(const Matrix& w, const Rows& x, Codes codes);

// y += bias, carrying y's bounds on; nothing when there is no bias.
void AddBias(const std::vector<double>& bias, Rows* y);

// factor * y rounded once more, carrying y's bounds on; y itself where the factor is 1.
Rows Scaled(double factor, Rows y);

// x + y, carrying y's bounds on.
Rows Residual(const Rows& x, const Rows& y);

struct RopeShape {
  int64_t head_dim = 0;
  int64_t rope_dim = 0;  // the first elements of each head that are rotated
  double theta = 0;
  bool halves = false;                  // pairs (i, i + rope_dim / 2) instead of (2i, 2i + 1)
  double linear = 1;                    // divides every angle
  std::vector<double> factors = {};     // and these, by pair; or empty
  double yarn = 1;                      // YaRN's factor; 1: none
  double yarn_context = 0;              // positions that the model was trained with before
  double yarn_fast = 0, yarn_slow = 0;  // turns within them
  double stretch = 1;                   // of what is rotated
};

// The shape of a model's layers: of those with a window, which may have their own, or of the
// others.
RopeShape RopeShapeOf(const Hyperparameters& hp, bool local);

// Each pair (a, b) turned by the angle position * theta^(-2i / rope_dim) / linear / factors[i] and
// stretched, carrying bounds on. YaRN divides the angles of slow pairs and stretches by itself.
Rows Rope(const Rows& x, std::span<const int64_t> positions, const RopeShape& shape);

// Rotated rows turned once more, `by` positions further, back where it is negative: by the angles
// alone, for they are stretched already.
Rows Turned(const Rows& x, int64_t by, RopeShape shape);

struct AttentionInput {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double scale = 0;              // of the dot products
  double cap = 0;                // of the scores: cap * tanh(score / cap); 0: none
  bool head_modulo = false;      // query head h reads KV head h mod kv_heads
  int64_t window = 0;            // a query sees the last so many of its rows; 0: all
  std::vector<int64_t> visible;  // by query: it sees rows [0, visible)
};

// softmax(scale * q k^T) v, head by head. keys and values: [positions, kv_heads * head_dim].
Rows Attention(const AttentionInput& input, const Rows& query, const Rows& keys,
               const Rows& values);

// silu(gate) * up, carrying bounds on.
Rows SwiGlu(const Rows& gate, const Rows& up);

// gelu(gate) * up, with GELU's tanh approximation, https://arxiv.org/abs/1606.08415.
Rows GeGlu(const Rows& gate, const Rows& up);

// cap * tanh(y / cap), carrying bounds on; y itself where the cap is 0.
Rows Capped(double cap, Rows y);

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_REFERENCE_OPS_H_
