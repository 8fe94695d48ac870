// How many operations of cache scripts a second are run and fully checked: subject against model
// after every operation, on one core, in processor time, so that neighbours do not count.
#ifndef LOCKSTEP_REPORTS_SCRIPT_BENCH_H_
#define LOCKSTEP_REPORTS_SCRIPT_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "reports/table.h"

namespace lockstep {

struct ScriptBenchOptions {
  std::vector<std::string> caches;  // empty: all that are registered
  uint64_t seed = 1;
  int32_t scripts = 2000;   // a cache and round; made before the clock starts
  int32_t operations = 60;  // asked of the builder for each
  int32_t rounds = 5;       // the fastest counts
};

struct ScriptBenchResult {
  std::string cache;
  int64_t operations = 0;  // of a round
  int64_t rows = 0;        // compared in a round
  double seconds = 0;      // of the fastest round, processor time
  bool holds = true;       // nothing was found
};

std::vector<ScriptBenchResult> RunScriptBench(const ScriptBenchOptions& options);

Table ScriptTableOf(const std::vector<ScriptBenchResult>& results);

// Of what ran, without times: equal for equal options on every machine.
Digest ScriptBenchDigest(const std::vector<ScriptBenchResult>& results);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_SCRIPT_BENCH_H_
