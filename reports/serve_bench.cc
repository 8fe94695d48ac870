#include "reports/serve_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "caches/error.h"
#include "caches/random.h"
#include "reports/bench/serve_case.h"
#include "reports/engine_report.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

using internal::ServeCase;
using internal::ServeTiming;

ServeBenchResult BenchRequests(const std::shared_ptr<const Model>& model, int32_t requests,
                               int32_t threads, const ServeBenchOptions& options,
                               const std::function<void()>& on_round) {
  ServeCase subject(model, {.requests = requests,
                            .prompt_tokens = options.prompt_tokens,
                            .new_tokens = options.new_tokens,
                            .threads = threads,
                            .seed = options.seed});
  ServeBenchResult result = {.requests = requests, .threads = threads, .tokens = subject.tokens()};
  const Digest digest = subject.Run(1).digest;
  result.equal_bits = true;
  for (int32_t round = 0; round < options.rounds; ++round) {
    double together = 0, in_turn = 0;
    const auto run = [&](int32_t at_a_time, double* seconds) {
      const ServeTiming timing = subject.Run(at_a_time);
      *seconds += timing.seconds / 2;
      result.equal_bits = result.equal_bits && timing.digest == digest;
    };
    run(requests, &together);
    run(1, &in_turn);
    run(1, &in_turn);
    run(requests, &together);
    result.together_seconds.push_back(together);
    result.in_turn_seconds.push_back(in_turn);
    on_round();
  }
  return result;
}

std::string RateOf(const ServeBenchResult& result, const std::vector<double>& seconds) {
  return fmt::format("{:.1f}", static_cast<double>(result.tokens) / Quantile(seconds, 0.5));
}

}  // namespace

std::vector<ServeBenchResult> RunServeBench(const std::shared_ptr<const Model>& model,
                                            const ServeBenchOptions& options) {
  const int64_t positions = int64_t{options.prompt_tokens} + options.new_tokens - 1;
  if (positions > model->config().context_length) {
    throw Error({"benchmark",
                 fmt::format("a request needs {} positions, the model's context has {}", positions,
                             model->config().context_length),
                 "choose shorter prompts or fewer tokens"});
  }
  const auto total =
      static_cast<int32_t>(options.requests.size() * options.threads.size()) * options.rounds;
  int32_t done = 0;
  const auto on_round = [&] {
    ++done;
    if (options.on_sample) options.on_sample(done, total);
  };
  std::vector<ServeBenchResult> results;
  for (const int32_t threads : options.threads) {
    for (const int32_t requests : options.requests) {
      results.push_back(BenchRequests(model, requests, threads, options, on_round));
    }
  }
  return results;
}

bool ServeBenchHolds(const std::vector<ServeBenchResult>& results) {
  return std::ranges::all_of(results, &ServeBenchResult::equal_bits);
}

Table ServeTableOf(const std::vector<ServeBenchResult>& results) {
  Table table{.header = {"requests", "threads", "in turn tokens/s", "together tokens/s",
                         "together / in turn", "bits"}};
  for (const ServeBenchResult& r : results) {
    const RatioEstimate ratio = EstimateRatio(r.in_turn_seconds, r.together_seconds, Random(1));
    table.rows.push_back(
        {fmt::format("{}", r.requests), fmt::format("{}", r.threads), RateOf(r, r.in_turn_seconds),
         RateOf(r, r.together_seconds),
         fmt::format("{:.2f} [{:.2f}, {:.2f}]", ratio.median, ratio.low, ratio.high),
         r.equal_bits ? "equal" : "CHANGED"});
  }
  return table;
}

std::string ServeMarkdown(const std::vector<ServeBenchResult>& results, const std::string& command,
                          const std::string& model) {
  return fmt::format(
             "## What sharing steps gains\n\n`{}`: {}; {}. So many requests on paged/16, their "
             "prompts included, in turn and together; rounds of together, in turn, in turn, "
             "together. Medians, and the ratio of neighbouring runs with a 95 % interval. Tokens "
             "and logits are the same bits.\n\n",
             command, model, MachineLine()) +
         TableMarkdown(ServeTableOf(results));
}

}  // namespace lockstep
