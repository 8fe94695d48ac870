// Generation: prefill, then one token a step.
#ifndef LOCKSTEP_ENGINE_GENERATE_H_
#define LOCKSTEP_ENGINE_GENERATE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/draft_source.h"
#include "engine/sampler.h"
#include "engine/transformer.h"

namespace lockstep {

class PrefixCache;  // engine/prefix_cache.h

struct GenerateOptions {
  int32_t max_new_tokens = 0;
  // Where an empty cache finds rows of texts that began like the prompt, and leaves its own; not
  // owned, or none. Changes no bit.
  PrefixCache* prefixes = nullptr;
  // The tokens that the cache holds, where penalties and drafts are to look at them too.
  std::span<const int32_t> before = {};
  SamplerOptions sampler = {};  // unless set, greedy
  uint64_t seed = 1;            // of the draws: equal seeds and options give equal tokens
  // Without it, and greedy, only tokens are asked of the engine, and the digest is that of nothing:
  // on a device the logits stay there.
  bool logits_digest = true;
  // Drafts of up to so many tokens a step, not owned, or none (Leviathan et al. 2023,
  // https://arxiv.org/abs/2211.17192). Greedy, tokens and digest are those without drafts; else the
  // tokens are others of exactly the same distribution.
  DraftSource* drafts = nullptr;
  int32_t draft_tokens = 4;
  // When all positions are used, those behind the first `shift_keep` lose their older half
  // (ShiftContext) and the text goes on; negative: a text that does not fit is refused.
  int32_t shift_keep = -1;
  // The so many likeliest tokens at each step with their log-probabilities, and the chosen one's;
  // negative: none.
  int32_t log_probabilities = -1;
  std::vector<int32_t> stop_tokens = {};             // generation ends after producing one of these
  std::function<void(int32_t token)> on_token = {};  // streaming, may be empty
  std::function<bool()> ended = {};                  // asked after each token; may be empty
  // After each decode step, with the first position whose rows it wrote; may be empty.
  std::function<void(int32_t position)> on_decode = {};
};

// Of one token of the result, under the logits as the model gave them.
struct TokenLogProbability {
  double chosen = 0;
  std::vector<std::pair<int32_t, double>> top;  // tokens, likeliest first

  friend bool operator==(const TokenLogProbability&, const TokenLogProbability&) = default;
};

struct GenerateResult {
  std::vector<int32_t> tokens;  // the new ones
  Digest logits_digest;         // over the logits of every step, in order, if it was asked for
  std::vector<TokenLogProbability> log_probabilities;  // of each token, if they were asked for
  int32_t attached = 0;                                // rows that were there already
  int64_t shifts = 0;                                  // of the context
  int64_t deleted = 0;                                 // positions, by shifts
  int64_t drafted = 0;                                 // tokens that the source proposed
  int64_t accepted = 0;                                // of them
};

// Appends to the cache from its current length. Throws Error before any work when the prompt and
// max_new_tokens do not fit into the model's context or the cache, with shifts the prompt alone or
// what is kept, and what CheckSamplerOptions throws.
GenerateResult Generate(Transformer& transformer, KvCache& cache, std::span<const int32_t> prompt,
                        const GenerateOptions& options);

// Rolls a cache that holds the tokens `held` back to what these have in common with the beginning
// of `text`, but for the last token of that: it is fed again, since its logits are wanted. Returns
// how many rows stay: none, where the cache has forgotten what going back there needs [W2].
// REQUIRES: text not empty.
int32_t KeepCommonPrefix(KvCache& cache, std::span<const int32_t> held,
                         std::span<const int32_t> text);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GENERATE_H_
