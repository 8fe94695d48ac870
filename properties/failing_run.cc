#include "properties/failing_run.h"

#include "properties/runner/run.h"

namespace lockstep {
namespace {

class FailingProbe : public runner::Probe {
 public:
  FailingProbe(AfterFailure after, const std::function<void(int64_t n)>& fail)
      : after_(after), fail_(fail) {}

  bool FailAllocation(int64_t n) override {
    fail_(n);
    return true;
  }

  // Another allocation in every call, since the number that a call makes is not known; a call that
  // makes fewer succeeds.
  std::optional<int64_t> GivesUpAt() override {
    if (after_ == AfterFailure::kRepeat) return std::nullopt;
    return calls_++ % 97;
  }

 private:
  AfterFailure after_;
  const std::function<void(int64_t n)>& fail_;
  int64_t calls_ = 0;
};

}  // namespace

ScriptRun RunScriptFailing(const CacheScript& script, const ScriptSubject& subject,
                           AfterFailure after,
                           const std::function<void(int64_t n)>& fail_allocation) {
  FailingProbe probe(after, fail_allocation);
  return runner::RunWithProbe(script, subject, &probe);
}

}  // namespace lockstep
