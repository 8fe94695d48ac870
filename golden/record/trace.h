// Sinks that keep what each sequence of a call computed, cut into internal steps.
#ifndef LOCKSTEP_GOLDEN_RECORD_TRACE_H_
#define LOCKSTEP_GOLDEN_RECORD_TRACE_H_

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "golden/record.h"
#include "properties/engine_step.h"

namespace lockstep {

// Of one call of the engine.
class CallTrace {
 public:
  CallTrace() = default;
  CallTrace(const CallTrace&) = delete;
  CallTrace& operator=(const CallTrace&) = delete;

  // The sink of one sequence, which also tells `next` of every stage (may be nullptr). Both are
  // borrowed, and the part.
  TraceSink* SinkOf(const StepPart& part, TraceSink* next);

  // The internal steps that were begun, in order; a step begins with its embeddings.
  std::vector<RecordedStep>& steps() { return steps_; }

  // The last of a sequence, or nullptr.
  RecordedStep* LastOf(int32_t sequence);

 private:
  class Sink;

  void Add(const StepPart& part, const StageRows& rows);

  std::vector<RecordedStep> steps_;
  std::vector<std::unique_ptr<TraceSink>> sinks_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_RECORD_TRACE_H_
