#include "engine/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "caches/error.h"

namespace lockstep {
namespace {

void CheckFits(const Transformer& transformer, const KvCache& cache, size_t prompt_tokens,
               int32_t max_new_tokens) {
  if (prompt_tokens == 0) {
    throw Error({"prompt", "it has no token to predict from", "give a prompt or add a BOS token"});
  }
  if (max_new_tokens < 0) {
    throw Error(
        {"max_new_tokens", fmt::format("{} is negative", max_new_tokens), "give 0 or more"});
  }
  // The last new token is never fed back, so it needs no row.
  const int64_t held = cache.current_length();
  const int64_t rows = held + static_cast<int64_t>(prompt_tokens) +
                       std::max<int64_t>(0, int64_t{max_new_tokens} - 1);
  const int32_t context = transformer.model().config().context_length;
  const bool model_is_limit = context <= cache.max_length();
  const int32_t limit = model_is_limit ? context : cache.max_length();
  if (rows > limit) {
    throw Error({"prompt",
                 fmt::format("{} rows in the cache, {} prompt tokens and {} new ones need {} "
                             "positions, {} has {}",
                             held, prompt_tokens, max_new_tokens, rows,
                             model_is_limit ? "the model's context" : "the cache", limit),
                 "shorten the prompt or ask for fewer tokens"});
  }
}

}  // namespace

GenerateResult GenerateGreedy(Transformer& transformer, KvCache& cache,
                              std::span<const int32_t> prompt, const GenerateOptions& options) {
  CheckFits(transformer, cache, prompt.size(), options.max_new_tokens);
  GenerateResult result;
  result.tokens.reserve(static_cast<size_t>(options.max_new_tokens));
  DigestBuilder digest;
  const auto step = [&](std::span<const int32_t> tokens, std::span<const int32_t> positions) {
    if (!options.logits_digest) return transformer.ForwardGreedy(tokens, positions, cache);
    const std::span<const float> logits = transformer.Forward(tokens, positions, cache);
    digest.AddFloats(logits);
    return ArgMax(logits);
  };

  std::vector<int32_t> positions(prompt.size());
  int32_t next_position = cache.current_length();
  std::iota(positions.begin(), positions.end(), next_position);
  next_position += static_cast<int32_t>(prompt.size());
  int32_t token = step(prompt, positions);

  while (static_cast<int32_t>(result.tokens.size()) < options.max_new_tokens) {
    result.tokens.push_back(token);
    if (options.on_token) options.on_token(token);
    const auto& stops = options.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    if (static_cast<int32_t>(result.tokens.size()) == options.max_new_tokens) break;
    const int32_t position = next_position++;
    token = step({&token, 1}, {&position, 1});
    if (options.on_decode) options.on_decode(position);
  }
  result.logits_digest = digest.Finish();
  return result;
}

}  // namespace lockstep
