// An executable of Google Benchmark, of any project, run once for each sample, so that samples
// share no memory layout, no warm cache and no random placement.
#ifndef LOCKSTEP_REPORTS_BENCH_PROGRAM_H_
#define LOCKSTEP_REPORTS_BENCH_PROGRAM_H_

#include <map>
#include <string>
#include <vector>

#include "reports/compare_session.h"
#include "reports/machine_probe.h"
#include "reports/results.h"

namespace lockstep {

struct BenchProgramOptions {
  std::string filter = ".*";       // an extended regular expression, as --benchmark_filter
  double seconds = 0.05;           // of one sample, --benchmark_min_time
  int timeout_seconds = 120;       // of one run
  bool small = false;              // lockstep_bench --small
  GoogleBenchmarkOptions reading;  // of what it writes
};

class BenchProgram {
 public:
  // Throws Error when there is no such executable, or it has no benchmark that the filter finds.
  BenchProgram(std::string path, BenchProgramOptions options);

  const std::string& path() const { return path_; }
  const std::string& build() const { return build_; }               // digest of its bytes
  const std::vector<std::string>& names() const { return names_; }  // in its order

  // One sample, with the state of the machine before and after beside it, and its limit where the
  // benchmark asks for it (reports/bench/main.cc). Throws Error when the program fails.
  Measured Measure(const std::string& name, MachineProbe* probe);

  // Instructions of one iteration of each benchmark in its small setting, counted by callgrind, for
  // lockstep_bench alone ("lockstep_bench" is its file's name). Measure adds them to its counters
  // from then on. Teams of threads are not counted, so a filter may leave nothing to count.
  enum class Counting { kCounted, kNothing, kForeign, kNoValgrind };
  Counting CountInstructions();

  // The toolchain, as far as it told with the last sample.
  const std::string& toolchain() const { return toolchain_; }

 private:
  std::string path_;
  BenchProgramOptions options_;
  std::string build_, toolchain_;
  std::vector<std::string> names_;
  std::map<std::string, double> instructions_;
  MachineState before_;  // of the last Measure's end
  bool has_before_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_BENCH_PROGRAM_H_
