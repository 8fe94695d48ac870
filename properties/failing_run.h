// RunScript with allocations that fail [M1, M2].
#ifndef LOCKSTEP_PROPERTIES_FAILING_RUN_H_
#define LOCKSTEP_PROPERTIES_FAILING_RUN_H_

#include <cstdint>
#include <functional>

#include "properties/script_runner.h"

namespace lockstep {

// After a call of the subject whose allocation failed:
enum class AfterFailure : uint8_t {
  // it is repeated with the next allocation failing, until it has what it needs; then the script
  // goes on as if nothing had ever failed;
  kRepeat,
  // it is given up: the script goes on as if the call had never been made.
  kGiveUp,
};

// `fail_allocation(n)` has to let the (n+1)-th allocation from now on throw std::bad_alloc, once;
// -1: none. Only a program that replaces operator new can offer it.
//
// After every failure both sides are compared, and the blocks' reference counts with those before:
// the state is what it was [M2]. Update, TryReserveSlot, CommitSlot, Rollback and Clear that
// succeed make no allocation at all [M1].
ScriptRun RunScriptFailing(const CacheScript& script, const ScriptSubject& subject,
                           AfterFailure after,
                           const std::function<void(int64_t n)>& fail_allocation);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_FAILING_RUN_H_
