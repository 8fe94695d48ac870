// What continuous batching gains: the tokens a second of N requests that share each step, beside
// the same requests one after another, on the same scheduler (engine/scheduler.h).
#ifndef LOCKSTEP_REPORTS_SERVE_BENCH_H_
#define LOCKSTEP_REPORTS_SERVE_BENCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/model.h"
#include "reports/table.h"

namespace lockstep {

struct ServeBenchOptions {
  std::vector<int32_t> requests = {2, 4, 8, 16};  // at a time
  std::vector<int32_t> threads = {1};
  int32_t prompt_tokens = 32;
  int32_t new_tokens = 32;
  int32_t rounds = 7;  // each: together, in turn, in turn, together
  uint64_t seed = 1;
  std::function<void(int32_t done, int32_t total)> on_sample = {};  // may be empty
};

struct ServeBenchResult {
  int32_t requests = 0;
  int32_t threads = 0;
  int64_t tokens = 0;                         // given in one run
  bool equal_bits = false;                    // in turn and together, in every round
  std::vector<double> together_seconds = {};  // of a run, by round
  std::vector<double> in_turn_seconds = {};
};

// Throws Error for requests longer than the model's context.
std::vector<ServeBenchResult> RunServeBench(const std::shared_ptr<const Model>& model,
                                            const ServeBenchOptions& options);

bool ServeBenchHolds(const std::vector<ServeBenchResult>& results);

// One row a result: medians, and the ratio of neighbouring runs with a 95 % interval.
Table ServeTableOf(const std::vector<ServeBenchResult>& results);
std::string ServeMarkdown(const std::vector<ServeBenchResult>& results, const std::string& command,
                          const std::string& model);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_SERVE_BENCH_H_
