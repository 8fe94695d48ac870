// Greedy generation: prefill, then one token a step.
#ifndef LOCKSTEP_ENGINE_GENERATE_H_
#define LOCKSTEP_ENGINE_GENERATE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/transformer.h"

namespace lockstep {

struct GenerateOptions {
  int32_t max_new_tokens = 0;
  // Without it only tokens are asked of the engine, and the digest is that of nothing: on a device
  // the logits stay there.
  bool logits_digest = true;
  std::vector<int32_t> stop_tokens = {};             // generation ends after producing one of these
  std::function<void(int32_t token)> on_token = {};  // streaming, may be empty
  // After each decode step, with the position whose rows it wrote; may be empty.
  std::function<void(int32_t position)> on_decode = {};
};

struct GenerateResult {
  std::vector<int32_t> tokens;  // the new ones
  Digest logits_digest;         // over the logits of every step, in order, if it was asked for
};

// Appends to the cache from its current length. Throws Error before any work when the prompt and
// max_new_tokens do not fit into the model's context or the cache.
GenerateResult GenerateGreedy(Transformer& transformer, KvCache& cache,
                              std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_GENERATE_H_
