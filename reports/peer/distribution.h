// Distributions over a vocabulary that two engines gave, and how far they are apart.
#ifndef LOCKSTEP_REPORTS_PEER_DISTRIBUTION_H_
#define LOCKSTEP_REPORTS_PEER_DISTRIBUTION_H_

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::internal {

// ln of each token's probability, [vocab_size], from logits or from probabilities. Minus infinity
// where a probability is 0: binary32 ends at 1e-45.
std::vector<double> LogProbabilities(std::span<const float> values, bool are_probabilities);

// The lowest index of the largest. REQUIRES: not empty.
int32_t ArgmaxOf(std::span<const double> values);

// Sum of p * (ln p - ln q) over the tokens with p > 0, in nats; a q of 0 counts as the smallest
// that binary32 holds.
double KlDivergence(std::span<const double> log_p, std::span<const double> log_q);

// |ln p - ln q| of tokens, but of those that both hold to be less likely than kLeastLikely: there
// binary32 probabilities lose digits and then everything.
inline constexpr double kLeastLikely = -69;  // ln of 1e-30
struct LogDistance {
  double max = 0;
  double sum = 0;
  int64_t tokens = 0;
  int64_t left_out = 0;
};
LogDistance DistanceOf(std::span<const double> log_p, std::span<const double> log_q);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_PEER_DISTRIBUTION_H_
