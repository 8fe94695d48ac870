// LS_CHECK: invariants of the harness itself, on in every build.
//
// Three kinds of failure are kept apart (see ARCHITECTURE.md):
//   1. a bug in lockstep            -> LS_CHECK, prints the values and aborts;
//   2. the world outside            -> lockstep::Error (error.h), exit code 2;
//   3. a fault found in a subject   -> plain data that is collected, exit code 1.
#ifndef LOCKSTEP_CACHES_CHECK_H_
#define LOCKSTEP_CACHES_CHECK_H_

#include <fmt/format.h>

#include <string>

namespace lockstep::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

}  // namespace lockstep::internal

// LS_CHECK(condition, "format", values...): the message is formatted only on failure.
#define LS_CHECK(condition, ...)                                           \
  (__builtin_expect(static_cast<bool>(condition), 1)                       \
       ? static_cast<void>(0)                                              \
       : ::lockstep::internal::CheckFailed(__FILE__, __LINE__, #condition, \
                                           ::fmt::format(__VA_ARGS__)))

#endif  // LOCKSTEP_CACHES_CHECK_H_
