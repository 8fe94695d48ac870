// Calls in a process of their own: a subject that crashes, hangs, ends the process or closes what
// it finds open is a finding, not the end.
#ifndef LOCKSTEP_PROPERTIES_ISOLATED_RUN_H_
#define LOCKSTEP_PROPERTIES_ISOLATED_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// How a process ended that was given calls to make.
struct IsolatedEnd {
  enum class Kind : uint8_t {
    kReturned,  // all calls returned
    kSignal,    // `number` is the signal
    kTimeout,
    kExit,   // by exit or the like; `number` is the status
    kThrew,  // an exception left the call
  };
  Kind kind = Kind::kReturned;
  int number = 0;
  std::string last_words = {};  // the last line on standard error, at most 200 bytes

  // "ended by SIGSEGV", "did not return", ...; with the last words, if there are any.
  std::string Text() const;
};

struct IsolatedCall {
  IsolatedEnd end;
  std::string output;  // what the call returned; empty when it did not
};

struct IsolatedBatch {
  IsolatedEnd end;
  std::vector<std::string> outputs;  // of the calls that returned, in order
};

// Forks and calls `body` in the child, which has `ms_max` milliseconds (twice as many at the most).
// What it writes to standard output is lost. Processes that it leaves behind are killed. What it
// returns comes back through memory, so that it may do what it likes with its descriptors.
// REQUIRES: the calling process has one thread.
IsolatedCall RunIsolatedCall(const std::function<std::string()>& body, int32_t ms_max);

// body(0), body(1), ... body(count - 1) in one child, each of which has `ms_max` milliseconds. The
// first that does not return ends the batch.
IsolatedBatch RunIsolatedBatch(int32_t count, const std::function<std::string(int32_t)>& body,
                               int32_t ms_max);

// The same for callers to whom every end is a signal or a timeout.
struct IsolatedResult {
  enum class End : uint8_t { kReturned, kSignal, kTimeout };
  End end = End::kReturned;
  int signal = 0;      // of kSignal; SIGABRT for an exit or an exception
  std::string output;  // what the call returned; empty when it did not
};
IsolatedResult RunIsolated(const std::function<std::string()>& body, int32_t seconds_max);

// "SIGSEGV", or the number.
std::string SignalName(int signal);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ISOLATED_RUN_H_
