#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/kernels.h"
#include "engine/math.h"

namespace lockstep {
namespace {

// What a share in [0, 1] is compared by: 2^32 for 1, rounded down.
uint64_t Fixed(float share) { return static_cast<uint64_t>(double{share} * 0x1p32); }

[[noreturn]] void Refuse(const char* flag, const std::string& what, const char* range) {
  throw Error({flag, what, fmt::format("give a number {}", range)});
}

void CheckRange(const char* flag, float value, bool inside, const char* range) {
  if (!std::isfinite(value) || !inside)
    Refuse(flag, fmt::format("{} is not {}", value, range), range);
}

}  // namespace

void CheckSamplerOptions(const SamplerOptions& options, int32_t vocab_size) {
  CheckRange("--temperature", options.temperature, options.temperature >= 0, "of at least 0");
  CheckRange("--top-p", options.top_p, options.top_p > 0 && options.top_p <= 1, "in (0, 1]");
  CheckRange("--min-p", options.min_p, options.min_p >= 0 && options.min_p <= 1, "in [0, 1]");
  CheckRange("--repetition-penalty", options.repetition_penalty, options.repetition_penalty > 0,
             "above 0");
  CheckRange("--presence-penalty", options.presence_penalty, true, "that is finite");
  CheckRange("--frequency-penalty", options.frequency_penalty, true, "that is finite");
  if (options.top_k < 0) Refuse("--top-k", "it is negative", "of at least 0");
  if (options.penalty_tokens < -1) Refuse("--penalty-tokens", "it is negative", "of at least -1");
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      throw Error({"--logit-bias", fmt::format("token {} is outside [0, {})", token, vocab_size),
                   "give a token of the vocabulary"});
    }
    if (std::isnan(bias) || bias == INFINITY) {
      Refuse("--logit-bias", fmt::format("the bias {} of token {}", bias, token),
             "that is finite, or -inf");
    }
  }
}

uint64_t Distribution::WeightOf(int32_t token) const {
  const auto found = std::ranges::find(entries, token, &Entry::token);
  return found == entries.end() ? 0 : found->weight;
}

Uint128 UniformBelow(Uint128 bound, Random* random) {
  LS_CHECK(bound > 0, "nothing to draw from");
  const Uint128 last = bound - 1;
  const auto high = static_cast<uint64_t>(last >> 64), low = static_cast<uint64_t>(last);
  const uint64_t high_mask = high == 0 ? 0 : ~uint64_t{0} >> std::countl_zero(high);
  const uint64_t low_mask = high != 0  ? ~uint64_t{0}
                            : low == 0 ? 0
                                       : ~uint64_t{0} >> std::countl_zero(low);
  while (true) {
    const uint64_t low_bits = random->Next() & low_mask;
    const uint64_t high_bits = high == 0 ? 0 : random->Next() & high_mask;
    const Uint128 value = Uint128{high_bits} << 64 | low_bits;
    if (value < bound) return value;
  }
}

int32_t Draw(const Distribution& distribution, Random* random) {
  LS_CHECK(!distribution.entries.empty(), "a distribution without tokens");
  Uint128 at = UniformBelow(distribution.total, random);
  for (const Distribution::Entry& entry : distribution.entries) {
    if (at < entry.weight) return entry.token;
    at -= entry.weight;
  }
  LS_CHECK(false, "weights do not add up to {}", distribution.total);
  return -1;
}

// In the order of the last occurrences' first ones: each token once, whatever the order.
void Sampler::Penalize(std::span<const int32_t> text) {
  const auto window = static_cast<size_t>(options_.penalty_tokens);
  if (options_.penalty_tokens >= 0 && text.size() > window) text = text.last(window);
  counts_.resize(logits_.size());
  const auto valid = [&](int32_t token) {
    return token >= 0 && static_cast<size_t>(token) < counts_.size();
  };
  for (const int32_t token : text) {
    if (valid(token)) ++counts_[static_cast<size_t>(token)];
  }
  for (const int32_t token : text) {
    if (!valid(token)) continue;
    int32_t& count = counts_[static_cast<size_t>(token)];
    if (count == 0) continue;
    float& logit = logits_[static_cast<size_t>(token)];
    const float penalty = options_.repetition_penalty;
    if (penalty != 1.0f) logit = logit > 0 ? logit / penalty : logit * penalty;
    logit -= static_cast<float>(count) * options_.frequency_penalty + options_.presence_penalty;
    count = 0;
  }
}

const Distribution& Sampler::Of(std::span<const float> logits, std::span<const int32_t> text) {
  LS_CHECK(!logits.empty(), "no logits");
  distribution_.entries.clear();
  if (options_.plain()) {
    distribution_.entries.push_back({ArgMax(logits), kWeightOne});
  } else {
    Choose(logits, text);
  }
  distribution_.total = 0;
  for (const Distribution::Entry& entry : distribution_.entries) {
    distribution_.total += entry.weight;
  }
  return distribution_;
}

void Sampler::Choose(std::span<const float> logits, std::span<const int32_t> text) {
  logits_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : options_.logit_bias) {
    logits_[static_cast<size_t>(token)] += bias;
  }
  if (options_.penalizes()) Penalize(text);
  const int32_t best = ArgMax(logits_);
  const float top = logits_[static_cast<size_t>(best)];
  if (!std::isfinite(top)) {
    distribution_.entries.push_back({ArgMax(logits), kWeightOne});
  } else if (options_.greedy()) {
    distribution_.entries.push_back({best, kWeightOne});
  } else {
    Cut(top);
  }
}

void Sampler::Cut(float top) {
  // e^-23 * 2^32 is below 1: such tokens are out, and need not be sorted.
  constexpr float kOut = -23.0f;
  order_.clear();
  for (size_t token = 0; token < logits_.size(); ++token) {
    const float logit = logits_[token];
    if ((logit - top) / options_.temperature >= kOut || logit == top) {
      order_.emplace_back(logit, static_cast<int32_t>(token));
    }
  }
  const auto before = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  const size_t kept = options_.top_k == 0
                          ? order_.size()
                          : std::min(order_.size(), static_cast<size_t>(options_.top_k));
  std::ranges::partial_sort(order_, order_.begin() + static_cast<std::ptrdiff_t>(kept), before);
  order_.resize(kept);

  Uint128 all = 0;
  for (const auto& [logit, token] : order_) {
    const float distance = (logit - order_[0].first) / options_.temperature;
    const auto weight = static_cast<uint64_t>(CanonicalExp(distance) * 0x1p32f);
    if (weight == 0) break;  // sorted: none is left
    distribution_.entries.push_back({token, weight});
    all += weight;
  }
  // Both cuts leave the likeliest token.
  const Uint128 least_share = Fixed(options_.min_p), share = Fixed(options_.top_p);
  Uint128 reached = 0;
  size_t size = 0;
  for (const Distribution::Entry& entry : distribution_.entries) {
    if (size > 0 && Uint128{entry.weight} << 32 < least_share * kWeightOne) break;
    if (size > 0 && reached << 32 >= share * all) break;
    reached += entry.weight;
    ++size;
  }
  distribution_.entries.resize(size);
}

}  // namespace lockstep
