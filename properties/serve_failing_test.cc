// Steps of a scheduler with allocations that fail.
#include <gtest/gtest.h>

#include "caches/failing_new.h"
#include "properties/serve_trace_runner.h"

namespace lockstep {
namespace {

TEST(ServeFailingTest, F5_AFailedStepLosesNoTokenAndNoBlock) {
  const ServeRunOptions failing = {
      .fail_allocation = [](int64_t n) { failing_new::failing_in = n; }};
  int64_t failed = 0, served = 0, preempted = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    ServeTrace trace = GenerateServeTrace(seed);
    trace.threads = 1;
    // Every failure drops all rows: a step that gives a token computes the whole text again.
    trace.budget = trace.chunk = 256;
    if (trace.requests.size() > 4) trace.requests.resize(4);
    const bool cancels = seed % 2 == 0;  // at a step, which is another moment when rows are lost
    for (TraceRequest& request : trace.requests) request.cancel = cancels ? request.cancel : -1;
    const ServeRun run = RunServeTrace(trace, failing);
    ASSERT_FALSE(run.finding) << run.finding->what << '\n' << ServeTraceText(trace);
    if (!cancels) {
      EXPECT_EQ(run.digest, RunServeTrace(trace).digest);
    }
    failed += run.failed_steps;
    served += run.counters.tokens;
    preempted += run.counters.preempted;
  }
  EXPECT_GT(failed, 1000);
  EXPECT_GT(served, 100);
  EXPECT_GT(preempted, 0);
}

}  // namespace
}  // namespace lockstep
