#include "golden/record/trace.h"

#include <algorithm>

namespace lockstep {

class CallTrace::Sink final : public TraceSink {
 public:
  Sink(CallTrace* call, const StepPart& part, TraceSink* next)
      : call_(call), part_(part), next_(next) {}

  void OnStage(const StageRows& rows) override {
    call_->Add(part_, rows);
    if (next_ != nullptr) next_->OnStage(rows);
  }

 private:
  CallTrace* call_;
  const StepPart& part_;
  TraceSink* next_;
};

TraceSink* CallTrace::SinkOf(const StepPart& part, TraceSink* next) {
  return sinks_.emplace_back(std::make_unique<Sink>(this, part, next)).get();
}

RecordedStep* CallTrace::LastOf(int32_t sequence) {
  const auto last = std::find_if(steps_.rbegin(), steps_.rend(), [&](const RecordedStep& step) {
    return step.sequence == sequence;
  });
  return last == steps_.rend() ? nullptr : &*last;
}

void CallTrace::Add(const StepPart& part, const StageRows& rows) {
  if (rows.stage == Stage::kEmbedding) {
    RecordedStep step{.sequence = part.sequence};
    step.positions.assign(rows.positions.begin(), rows.positions.end());
    for (const int32_t position : step.positions) {
      // A wrong engine may write where nothing was asked for.
      const auto at = std::ranges::find(part.positions, position);
      step.tokens.push_back(at == part.positions.end()
                                ? -1
                                : part.tokens[static_cast<size_t>(at - part.positions.begin())]);
    }
    steps_.push_back(std::move(step));
  }
  RecordedStep* step = LastOf(part.sequence);
  if (step == nullptr) return;
  step->entries.push_back({.layer = rows.layer,
                           .stage = rows.stage,
                           .positions = {rows.positions.begin(), rows.positions.end()},
                           .rows = {rows.rows.begin(), rows.rows.end()},
                           .width = rows.width});
}

}  // namespace lockstep
