// Runs a script in a process of its own: a subject that crashes or hangs is a finding, not the end.
#ifndef LOCKSTEP_PROPERTIES_ISOLATED_RUN_H_
#define LOCKSTEP_PROPERTIES_ISOLATED_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

// How a call in a process of its own ended.
struct IsolatedResult {
  enum class End : uint8_t { kReturned, kSignal, kTimeout };
  End end = End::kReturned;
  int signal = 0;      // of kSignal
  std::string output;  // what the call returned; what it had returned by then is lost otherwise
};

// Forks, calls `body` in the child and brings back the text that it returns. The child has
// `seconds_max` seconds. REQUIRES: the calling process has one thread.
IsolatedResult RunIsolated(const std::function<std::string()>& body, int32_t seconds_max);

// "SIGSEGV", or the number.
std::string SignalName(int signal);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_ISOLATED_RUN_H_
