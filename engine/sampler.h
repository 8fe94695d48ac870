// From logits to a token: penalties, temperature, cuts, and a draw that is the same everywhere.
//
// A distribution is whole numbers: each token's weight, 2^32 for the likeliest. Sums and
// comparisons are then exact, in any order, and a draw is uniform below the sum to the last bit.
// Logits to weights is the one place with rounding, and its lines are in engine/ARITHMETIC.md.
#ifndef LOCKSTEP_ENGINE_SAMPLER_H_
#define LOCKSTEP_ENGINE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "caches/random.h"

namespace lockstep {

// In the order in which they act.
struct SamplerOptions {
  // Added to the logit of a token; minus infinity forbids it.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  // Of the last so many tokens of the text, prompt included; -1: of all. A logit above 0 is divided
  // by `repetition`, one below is multiplied (Keskar et al. 2019, https://arxiv.org/abs/1909.05858,
  // section 4.1); then `presence` is subtracted once, and `frequency` as often as the token occurs.
  int32_t penalty_tokens = 64;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // Logits are divided by it. 0: the likeliest token alone, and nothing below acts.
  float temperature = 0;
  int32_t top_k = 0;  // the so many likeliest tokens; 0: all
  // The likeliest tokens whose weights reach this share of all (Holtzman et al. 2020,
  // https://arxiv.org/abs/1904.09751).
  float top_p = 1;
  // Tokens with at least this share of the likeliest one's weight
  // (https://arxiv.org/abs/2407.01082).
  float min_p = 0;

  bool greedy() const { return temperature == 0; }
  bool penalizes() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  // Whether the token is the argmax of the logits as they come.
  bool plain() const { return greedy() && logit_bias.empty() && !penalizes(); }
};

// Throws Error, naming the option as a flag ("--top-p"), for a number outside its range:
// temperature at least 0, top_k at least 0, top_p in (0, 1], min_p in [0, 1], repetition above 0,
// penalty_tokens at least -1, all finite; and for a biased token outside the vocabulary.
void CheckSamplerOptions(const SamplerOptions& options, int32_t vocab_size);

__extension__ typedef unsigned __int128 Uint128;

// The largest weight: the likeliest token's.
inline constexpr uint64_t kWeightOne = uint64_t{1} << 32;

// Tokens that may come next. By falling logit, equal ones by rising token; all weights above 0.
struct Distribution {
  struct Entry {
    int32_t token = 0;
    uint64_t weight = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;

  uint64_t WeightOf(int32_t token) const;  // 0 when it is not there
  friend bool operator==(const Distribution&, const Distribution&) = default;
};

// Uniform in [0, bound), exactly: bits are drawn again until they are below. REQUIRES: bound > 0.
Uint128 UniformBelow(Uint128 bound, Random* random);

// A token with the probability weight / total. REQUIRES: not empty.
int32_t Draw(const Distribution& distribution, Random* random);

// Keeps its buffers. Not for several threads at once.
class Sampler {
 public:
  // REQUIRES: options that CheckSamplerOptions takes.
  explicit Sampler(SamplerOptions options) : options_(std::move(options)) {}

  const SamplerOptions& options() const { return options_; }

  // What may follow `text` (prompt and generated tokens). Never empty: where nothing has a weight
  // (all logits NaN, or forbidden), the likeliest token of the logits as they came. Valid until the
  // next call.
  const Distribution& Of(std::span<const float> logits, std::span<const int32_t> text);

 private:
  void Choose(std::span<const float> logits, std::span<const int32_t> text);
  void Penalize(std::span<const int32_t> text);
  void Cut(float top);  // the largest of logits_

  const SamplerOptions options_;
  std::vector<float> logits_;
  std::vector<int32_t> counts_;  // by token, zero between calls
  std::vector<std::pair<float, int32_t>> order_;
  Distribution distribution_;
};

// log softmax of logits, for reading and not for drawing. From the weights of temperature 1, so
// that no order of additions matters; within 1e-4 of the exact one for vocabularies below 2^18.
class LogProbabilities {
 public:
  // REQUIRES: not empty. Borrows the logits.
  explicit LogProbabilities(std::span<const float> logits);

  double Of(int32_t token) const;  // -infinity for a logit of that; NaN where logits are

  // The `count` likeliest tokens, falling, ties by token.
  std::vector<std::pair<int32_t, double>> Top(int32_t count) const;

 private:
  std::span<const float> logits_;
  float top_ = 0;
  double log_sum_ = 0;  // of e^(x - top)
};

// What a target model makes of drafts. `accepted` of them stand, and `token` follows them.
struct Verdict {
  int32_t accepted = 0;
  int32_t token = 0;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// Speculative sampling: Leviathan, Kalman, Matias 2023, https://arxiv.org/abs/2211.17192, algorithm
// 1, in whole numbers. The tokens have exactly the distribution `target`: a draft x stands with
// probability min(1, p(x) / q(x)), and else max(0, p - q) is drawn from.
//   target: [drafts + 1], p at each draft and behind the last; proposal: [drafts], q of each.
// REQUIRES: each draft has a weight in its proposal.
Verdict JudgeDrafts(std::span<const Distribution> target, std::span<const Distribution> proposal,
                    std::span<const int32_t> drafts, Random* random);

// The two numbers behind it, for proofs. A draft stands when UniformBelow(of) is below `standing`.
struct AcceptanceRatio {
  Uint128 standing = 0;
  Uint128 of = 1;
};
AcceptanceRatio AcceptanceRatioOf(const Distribution& p, const Distribution& q, int32_t token);
// max(0, p - q) over the common denominator p.total * q.total, in p's order.
std::vector<Uint128> ResidualOf(const Distribution& p, const Distribution& q);

// Up to `count` tokens that followed the last earlier occurrence of the text's last `match` tokens,
// or of fewer, down to one: drafts for text that repeats itself. Saxena, "Prompt Lookup Decoding",
// 2023, https://github.com/apoorvumang/prompt-lookup-decoding. Empty when there is none.
std::vector<int32_t> LookupDrafts(std::span<const int32_t> text, int32_t match, int32_t count);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_SAMPLER_H_
