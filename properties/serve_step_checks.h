// What one step of a scheduler did to each request of a trace, and whether it keeps what
// engine/scheduler.h promises of order, budget and progress.
#ifndef LOCKSTEP_PROPERTIES_SERVE_STEP_CHECKS_H_
#define LOCKSTEP_PROPERTIES_SERVE_STEP_CHECKS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/prefix_index.h"
#include "engine/scheduler.h"
#include "properties/serve_reference.h"
#include "properties/serve_trace_runner.h"

namespace lockstep {

// A request that was taken, and how it has to go.
struct ServeExpected {
  TraceRequest request;
  ServeReference alone = {};
  size_t given = 0;  // tokens
  bool ended = false;
  bool cancelled = false;
  bool resumes = false;  // preempted behind a token that it was given
  int32_t reached = 0;   // the most rows that it had after a step
  int64_t deadline = 0;  // steps

  int32_t rows() const { return static_cast<int32_t>(alone.rows.size()) - 1; }  // all it gets
};

struct ServeStep {
  const ServeTrace& trace;
  const BlockPool* pool;     // null: none
  const PrefixIndex* index;  // null: none
  const std::vector<RequestStatus>& before;
  const std::vector<RequestStatus>& after;
  std::span<const ServedToken> served;
  const SchedulerCounters& counters_before;
  const SchedulerCounters& counters_after;
};

// Of one request of `before`.
struct ServeGrowth {
  const RequestStatus* before = nullptr;
  const RequestStatus* after = nullptr;  // null: it ended
  int32_t attached = 0;
  int32_t from = 0;  // rows that were there when the step computed others
  int32_t rows = 0;  // computed
  bool admitted = false;
  bool preempted = false;
};

const RequestStatus* FindStatus(const std::vector<RequestStatus>& all, int64_t id);

// `expected` by id, from 1.
std::vector<ServeGrowth> GrowthIn(const ServeStep& step, std::span<const ServeExpected> expected);

// One sentence, or nothing.
std::optional<std::string> GrowthFault(const ServeStep& step, std::span<const ServeGrowth> growth);
std::optional<std::string> CounterFault(const ServeStep& step, std::span<const ServeGrowth> growth,
                                        std::span<const ServeExpected> expected);

// Which requests have come how far.
void NoteGrowth(std::span<const ServeGrowth> growth, std::vector<ServeExpected>* expected);

void CountShapes(const ServeStep& step, std::span<const ServeGrowth> growth,
                 std::span<const ServeExpected> expected,
                 std::array<int64_t, kServeClasses>* classes);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SERVE_STEP_CHECKS_H_
