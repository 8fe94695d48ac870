// Requests that a scheduler serves at the same time, and the same ones one after another.
#ifndef LOCKSTEP_REPORTS_BENCH_SERVE_CASE_H_
#define LOCKSTEP_REPORTS_BENCH_SERVE_CASE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "caches/digest.h"
#include "caches/kv_cache.h"
#include "engine/model.h"
#include "engine/scheduler.h"
#include "engine/transformer.h"

namespace lockstep::internal {

struct ServeCaseOptions {
  int32_t requests = 8;
  int32_t prompt_tokens = 32;  // each of its own, uniform over the vocabulary
  int32_t new_tokens = 32;     // greedy
  int32_t threads = 1;
  uint64_t seed = 1;
};

struct ServeTiming {
  double seconds = 0;  // of all steps
  Digest digest = {};  // of tokens and logits, by request
  int64_t steps = 0;
};

class ServeCase {
 public:
  // Over paged/16. Throws Error for requests longer than the model's context.
  ServeCase(std::shared_ptr<const Model> model, const ServeCaseOptions& options);

  // At most so many requests run at a time; the others wait. Hashing is not in the time.
  ServeTiming Run(int32_t at_a_time);

  int64_t tokens() const;  // that one run gives

 private:
  std::shared_ptr<const Model> model_;
  ServeCaseOptions options_;
  Transformer transformer_;
  std::unique_ptr<KvCache> root_;
  std::vector<ServeRequest> requests_;
};

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_BENCH_SERVE_CASE_H_
