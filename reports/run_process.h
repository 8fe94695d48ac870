// Runs a program with limits, its output in files. For its output as text: reports/run_program.h.
#ifndef LOCKSTEP_REPORTS_RUN_PROCESS_H_
#define LOCKSTEP_REPORTS_RUN_PROCESS_H_

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct ProcessRequest {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
  std::string folder;             // where it runs
  std::string log;                // file for both outputs, written anew
  std::string errors = {};        // file for standard error alone; empty: it goes to the log
  double seconds_max = 0;         // 0: as long as it takes
  // Resident, of the program and all that it started. 0: nobody looks, and nothing is read beside a
  // program whose time is taken.
  double bytes_max = 4e9;
  // Asked every few milliseconds with the seconds that have passed; false stops the program.
  std::function<bool(double)> on_wait = {};
};

struct ProcessEnd {
  enum class Kind { kExited, kSignal, kTimeout, kMemory, kStopped };
  Kind kind = Kind::kExited;
  int code = 0;  // exit code or signal
  double seconds = 0;

  bool ok() const { return kind == Kind::kExited && code == 0; }
};

// To the end of the program, or until a limit is passed or it is stopped: then the program and what
// it started (its process group) are killed. Throws Error when it cannot be started.
ProcessEnd RunProcess(const ProcessRequest& request);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_RUN_PROCESS_H_
