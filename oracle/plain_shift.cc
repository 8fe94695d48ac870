#include "oracle/plain_shift.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {
namespace {

// The pair, as a real number, that turns so many times within YaRN's original context.
long double PairOfTurns(const RopeFrequencies& rope, double turns) {
  const long double length = std::log(static_cast<long double>(rope.yarn->original) /
                                      (turns * 2 * std::numbers::pi_v<long double>));
  return length * rope.dim / (2 * std::log(static_cast<long double>(rope.theta)));
}

// Radians a position.
long double FrequencyOf(const RopeFrequencies& rope, int32_t pair) {
  long double frequency =
      std::pow(static_cast<long double>(rope.theta), -2.0L * pair / rope.dim) / rope.linear;
  if (rope.yarn) {
    const auto last = static_cast<long double>(rope.dim - 1);
    const long double begin =
        std::floor(std::clamp(PairOfTurns(rope, rope.yarn->fast), 0.0L, last));
    const long double end = std::ceil(std::clamp(PairOfTurns(rope, rope.yarn->slow), 0.0L, last));
    const double width = end > begin ? static_cast<double>(end - begin) : 0.001;
    const double divided =
        std::clamp((pair - static_cast<double>(begin)) / width, 0.0, 1.0);  // as doubles
    frequency *= divided / static_cast<long double>(rope.yarn->factor) + (1.0L - divided);
  }
  if (!rope.factors.empty()) frequency /= rope.factors[static_cast<size_t>(pair)];
  return frequency;
}

}  // namespace

void PlainTurnBack(const ModelConfig& config, int32_t layer, int32_t distance,
                   std::span<float> key) {
  if (config.no_rope_interval != 0 && (layer + 1) % config.no_rope_interval == 0) return;
  const bool local = config.full_interval == 0 || (layer + 1) % config.full_interval != 0;
  const RopeFrequencies& rope = config.local_rope && local ? *config.local_rope : config.rope;
  const int32_t half = config.rope.dim / 2;
  for (int32_t pair = 0; pair < half; ++pair) {
    const long double angle = FrequencyOf(rope, pair) * distance;
    const auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
    for (int32_t head = 0; head < config.num_kv_heads; ++head) {
      const bool halves = config.rope_pairing == RopePairing::kHalves;
      const int32_t at = head * config.head_dim + (halves ? pair : 2 * pair);
      float& first = key[static_cast<size_t>(at)];
      float& second = key[static_cast<size_t>(at + (halves ? half : 1))];
      const float a = first, b = second;
      first = std::fma(a, c, b * s);
      second = std::fma(a, -s, b * c);
    }
  }
}

}  // namespace lockstep
