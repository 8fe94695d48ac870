#include "properties/engine_checked_run.h"

#include <utility>

#include "caches/memory_watch.h"

namespace lockstep {
namespace {

EngineRun RunUnder(const MemoryWatchOptions& options, const EngineScript& script,
                   const EngineSubject& subject) {
  const MemoryWatch watch(options);
  EngineRun run = RunEngineScript(script, subject);
  const auto last = static_cast<int32_t>(script.ops.size()) - 1;
  if (const auto faults = watch.Audit(); !run.finding && !faults.empty()) {
    run.finding = EngineFinding{.op = last, .clause = "memory", .what = faults[0]};
  }
  return run;
}

}  // namespace

EngineRun RunEngineScriptChecked(const EngineScript& script, const EngineSubject& subject) {
  EngineRun first = RunUnder({.guard = GuardPages::kAfter, .poison = 0xff}, script, subject);
  if (first.finding) return first;
  EngineRun second = RunUnder({.guard = GuardPages::kBefore, .poison = 0x5a}, script, subject);
  if (!second.finding && second.digest != first.digest) {
    second.finding = EngineFinding{
        .op = static_cast<int32_t>(script.ops.size()) - 1,
        .clause = "memory",
        .what = "logits or rows depend on memory that was read before it was written"};
  }
  return second;
}

}  // namespace lockstep
