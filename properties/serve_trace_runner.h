// Runs a trace of requests on a scheduler, beside each request alone: its tokens one by one through
// the scalar kernels into a ModelCache (engine_reference.h), drawn from the same seed.
//
// After every step: the tokens and logits that it gave, the rows of everything that runs, the books
// of the pool, what the scheduler promises of order, budget and progress, and its own counters. At
// the end every block is back.
#ifndef LOCKSTEP_PROPERTIES_SERVE_TRACE_RUNNER_H_
#define LOCKSTEP_PROPERTIES_SERVE_TRACE_RUNNER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "caches/digest.h"
#include "engine/scheduler.h"
#include "properties/serve_trace.h"

namespace lockstep {

// What a campaign has to have reached before it has tested anything.
enum class ServeClass : uint8_t {
  kAdmittedMidDecode,    // while another one decodes
  kPrefillBesideDecode,  // in one step
  kChunked,              // a prompt in several steps
  kBudgetFull,           // a step with as many rows as it may have, of several requests
  kWaitedForPlace,       // as many run as may
  kWaitedForBlocks,
  kPoolExactlyFull,  // no block is left, and the step was done
  kPreemptedPrefilling,
  kPreemptedDecoding,
  kPreemptedTwice,
  kDrawsAfterPreemption,  // a drawn token of a text that was preempted behind another
  kCancelledWaiting,
  kCancelledPrefilling,
  kCancelledDecoding,
  kCancelledPreempted,
  kHit,
  kHitWithRunning,  // blocks that another one has at the time
  kHitAfterPreemption,
  kHitAfterEviction,
  kHitUnderAdapters,
  kStopped,
  kRefusedByContext,
  kRefusedByPool,
  kAdaptersDiffer,  // in one step
  kOneARequest,     // a cache without a pool
  kThreads,         // more than one
};
inline constexpr size_t kServeClasses = 26;

std::string_view ServeClassName(ServeClass serve_class);  // "admitted_mid_decode", ...

struct ServeFinding {
  int32_t step = 0;
  std::string what;
};

struct ServeRun {
  std::optional<ServeFinding> finding;
  std::array<int64_t, kServeClasses> classes = {};
  SchedulerCounters counters;
  int64_t failed_steps = 0;  // whose allocations failed
  Digest digest;             // of what every request that was not cancelled was given, by request
};

// What is run, so that wrong ones can be put in its place.
class ServeDriver {
 public:
  explicit ServeDriver(Scheduler& scheduler) : scheduler_(scheduler) {}
  virtual ~ServeDriver() = default;
  ServeDriver(const ServeDriver&) = delete;
  ServeDriver& operator=(const ServeDriver&) = delete;

  virtual int64_t Submit(ServeRequest request) { return scheduler_.Submit(std::move(request)); }
  virtual bool Cancel(int64_t id) { return scheduler_.Cancel(id); }
  virtual std::span<const ServedToken> Step() { return scheduler_.Step(); }

 protected:
  Scheduler& scheduler() { return scheduler_; }

 private:
  Scheduler& scheduler_;
};

struct ServeRunOptions {
  std::function<std::unique_ptr<ServeDriver>(Scheduler&)> make_driver = {};  // empty: the right
  // Lets the (n+1)-th allocation from now on fail, once; -1: none. Each step is then tried with
  // many allocations failing before it may be done.
  std::function<void(int64_t n)> fail_allocation = {};
};

// Stops at the first finding. Not for several threads at once.
ServeRun RunServeTrace(const ServeTrace& trace, const ServeRunOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SERVE_TRACE_RUNNER_H_
