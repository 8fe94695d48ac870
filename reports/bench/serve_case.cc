#include "reports/bench/serve_case.h"

#include "caches/random.h"
#include "caches/registry.h"
#include "engine/stopwatch.h"

namespace lockstep::internal {

ServeCase::ServeCase(std::shared_ptr<const Model> model, const ServeCaseOptions& options)
    : model_(std::move(model)),
      options_(options),
      transformer_(model_, {.threads = options.threads}),
      root_(ParseCacheSpec("paged/16")
                .make({.geometry = model_->config().geometry(options.prompt_tokens +
                                                             options.new_tokens - 1),
                       .sequences = options.requests})) {
  Random random(options.seed);
  for (int32_t i = 0; i < options.requests; ++i) {
    ServeRequest request = {.max_new_tokens = options.new_tokens};
    for (int32_t token = 0; token < options.prompt_tokens; ++token) {
      request.prompt.push_back(random.Between(0, model_->config().vocab_size - 1));
    }
    requests_.push_back(std::move(request));
  }
}

ServeTiming ServeCase::Run(int32_t at_a_time) {
  Scheduler scheduler(transformer_, *root_, {.max_running = at_a_time});
  std::vector<DigestBuilder> digests(requests_.size());
  for (const ServeRequest& request : requests_) scheduler.Submit(request);
  ServeTiming timing;
  while (!scheduler.idle()) {
    const Stopwatch stopwatch;
    const std::span<const ServedToken> served = scheduler.Step();
    timing.seconds += stopwatch.seconds();
    for (const ServedToken& token : served) {
      DigestBuilder& digest = digests[static_cast<size_t>(token.id - 1)];
      digest.AddU32(static_cast<uint32_t>(token.token));
      digest.AddFloats(token.logits);
    }
  }
  DigestBuilder all;
  for (const DigestBuilder& digest : digests) all.AddText(digest.Finish().Hex());
  timing.digest = all.Finish();
  timing.steps = scheduler.counters().steps;
  return timing;
}

int64_t ServeCase::tokens() const { return int64_t{options_.requests} * options_.new_tokens; }

}  // namespace lockstep::internal
