// Runs a program to its end and keeps what it printed.
#ifndef LOCKSTEP_REPORTS_RUN_PROGRAM_H_
#define LOCKSTEP_REPORTS_RUN_PROGRAM_H_

#include <string>
#include <vector>

namespace lockstep {

struct ProgramEnd {
  int exit_code = -1;  // -1: a signal ended it, or the time limit
  std::string out, err;
};

// argv[0] is looked up in PATH. Killed, with what it started, after `timeout_seconds`. Throws Error
// when it cannot be started.
ProgramEnd RunProgram(const std::vector<std::string>& argv, int timeout_seconds);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_RUN_PROGRAM_H_
