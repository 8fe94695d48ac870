// One request of a trace, run alone and one token at a time on the plain engine.
#ifndef LOCKSTEP_PROPERTIES_SERVE_REFERENCE_H_
#define LOCKSTEP_PROPERTIES_SERVE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "caches/digest.h"
#include "engine/scheduler.h"
#include "oracle/model_cache.h"
#include "properties/engine_state.h"

namespace lockstep {

struct ServeReference {
  std::vector<int32_t> tokens;             // new ones
  std::vector<std::vector<float>> logits;  // of each
  std::vector<Digest> rows;                // the cache hash with so many rows
};

// REQUIRES: the request fits the cache.
ServeReference RunAlone(const EngineModel& model, const ModelCacheOptions& cache,
                        const ServeRequest& request);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SERVE_REFERENCE_H_
