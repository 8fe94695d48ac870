// What `lockstep_bench` measures, one entry a benchmark. An entry is made when its turn comes, so
// that naming them all costs nothing.
#ifndef LOCKSTEP_REPORTS_BENCH_ENTRIES_H_
#define LOCKSTEP_REPORTS_BENCH_ENTRIES_H_

#include <functional>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "reports/work.h"

namespace lockstep::internal {

struct MadeBench {
  std::function<void()> run;       // one iteration; computes the same every time
  std::function<Digest()> digest;  // of what the last iteration computed
  Work work = {};                  // of one iteration
  std::string bound = {};          // what limits it: "memory", "arithmetic"; may be empty
  int threads = 1;                 // that read memory at the same time
  // The limit is stated beside each sample, and comparisons judge fractions of it.
  bool judged_by_limit = false;
  // Seconds of the part of the last iteration that counts; empty: all of it.
  std::function<double()> seconds = {};
};

struct BenchEntry {
  std::string name;  // "write/update/135m/paged_16", without blanks
  std::string bits;  // what computes the same bits: the name without kernel table and threads
  std::function<MadeBench()> make;
};

// `small`: a setting that takes milliseconds, computes the same bits everywhere, and leaves out
// what depends on the machine or its environment.
std::vector<BenchEntry> KernelEntries(bool small);
std::vector<BenchEntry> WriteEntries(bool small);
std::vector<BenchEntry> AttentionEntries(bool small);
std::vector<BenchEntry> EngineEntries(bool small);  // of $LOCKSTEP_BENCH_MODEL, where it is set
std::vector<BenchEntry> DataEntries(bool small);

std::vector<BenchEntry> AllBenchEntries(bool small);

// The name with blanks and slashes as underlines and without commas.
std::string BenchWord(std::string text);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_BENCH_ENTRIES_H_
