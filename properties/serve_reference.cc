#include "properties/serve_reference.h"

#include <algorithm>

#include "caches/random.h"
#include "engine/sampler.h"
#include "properties/engine_reference.h"

namespace lockstep {

ServeReference RunAlone(const EngineModel& model, const ModelCacheOptions& cache,
                        const ServeRequest& request) {
  ServeReference alone;
  EngineReference engine(*model.plain, cache);
  Sampler sampler(request.sampler);
  Random random(request.seed);
  std::vector<int32_t> text = request.prompt;
  alone.rows.push_back(engine.rows());
  for (size_t fed = 0; fed < text.size(); ++fed) {
    engine.Append({&text[fed], 1}, request.adapters);
    alone.rows.push_back(engine.rows());
    if (fed + 1 < text.size()) continue;
    const int32_t token = Draw(sampler.Of(engine.logits(), text), &random);
    alone.logits.push_back(engine.logits());
    alone.tokens.push_back(token);
    const bool stops = std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end();
    if (stops || std::ssize(alone.tokens) == request.max_new_tokens) break;
    text.push_back(token);
  }
  return alone;
}

}  // namespace lockstep
