// exp, tanh, sine, cosine and power made of basic IEEE operations only: the same bits everywhere.
// Definitions with every constant in hex: engine/ARITHMETIC.md. No libm on the way to a logit.
#ifndef LOCKSTEP_ENGINE_MATH_H_
#define LOCKSTEP_ENGINE_MATH_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// Of engine/ARITHMETIC.md: goes up with every change of a bit that the text defines, and then all
// golden files are recorded anew.
inline constexpr int32_t kArithmeticVersion = 1;

// e^x in binary32, at most 1 ulp from the true value. Limits are stated in ARITHMETIC.md.
float CanonicalExp(float x);

// tanh in binary32, at most 2 ulp from the true value.
float CanonicalTanh(float x);

// Double precision, for tables that are rounded once to binary32.
struct SinCos {
  double sin;
  double cos;
};
SinCos CanonicalSinCos(double radians);             // REQUIRES: |radians| <= 2^31
double CanonicalPow(double base, double exponent);  // REQUIRES: base > 0, finite result
double CanonicalLog(double x);                      // natural; REQUIRES: x > 0, finite

// YaRN, https://arxiv.org/abs/2309.00071, section 3: pairs that turn often within the original
// context keep their frequency, pairs that turn seldom have it divided by `factor`, and between
// both it goes over linearly.
struct YarnScaling {
  double factor = 1;
  double original = 0;  // positions of the original context
  double fast = 32;     // turns within it above which a pair is kept
  double slow = 1;      // and below which it is divided
};

// Which angle a pair of elements is turned by for each position: theta^(-2i / dim), i < dim / 2,
// divided by `linear` (position interpolation, https://arxiv.org/abs/2306.15595, section 3.2) and
// by the pair's own factor (Llama 3.1, https://arxiv.org/abs/2407.21783; in GGUF the tensor
// rope_freqs.weight; LongRoPE, https://arxiv.org/abs/2402.13753).
struct RopeFrequencies {
  int32_t dim = 0;  // rotated elements of a head, even
  double theta = 0;
  double linear = 1;
  std::vector<float> factors = {};  // [dim / 2], or empty for ones
  std::optional<YarnScaling> yarn = {};
  double attention =
      1;  // of cosines and sines, and so of rotated elements; YaRN's own comes on top
};

// RoPE angles: cos and sin of position * frequency, times what `attention` says, rounded once to
// binary32.
// RoFormer, https://arxiv.org/abs/2104.09864, equation 15.
class RopeTable {
 public:
  // REQUIRES: dim even and > 0; theta, linear, factors and attention finite and > 0, no frequency
  // above 1; with YaRN theta > 1, its numbers > 0; num_positions > 0.
  RopeTable(const RopeFrequencies& frequencies, int32_t num_positions);

  std::span<const float> cos(int32_t position) const;  // [rope_dim / 2]
  std::span<const float> sin(int32_t position) const;  // [rope_dim / 2]

 private:
  int32_t half_ = 0;
  int32_t num_positions_ = 0;
  std::vector<float> table_;  // [num_positions, 2, half]
};

// Fails (LS_CHECK) unless the floating-point environment is the specified one: round to nearest
// even, subnormals kept. Called once at start and by tests.
void CheckFloatingPointEnvironment();

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MATH_H_
