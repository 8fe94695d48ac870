// How fast each kernel of each table is on one thread, beside the larger of its two least times:
// that of its bytes at the read bandwidth, and that of its multiply-adds at the peaks. Bytes are
// those read and written once, in arrays that no cache holds; prefill kernels reuse what they read
// and count only their first reading.
#ifndef LOCKSTEP_REPORTS_KERNEL_BENCH_H_
#define LOCKSTEP_REPORTS_KERNEL_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "reports/limits.h"
#include "reports/table.h"
#include "reports/work.h"

namespace lockstep {

struct KernelBenchOptions {
  std::vector<std::string> isas;            // kernel tables; empty: all that there are
  int64_t array_bytes = int64_t{64} << 20;  // of what streams through
  double seconds = 0.01;                    // of one sample, at least
  int32_t rounds = 5;
  uint64_t seed = 1;  // of the data
  LimitOptions limits;
  std::function<void(int32_t done, int32_t total)> on_sample = {};  // progress, may be empty
};

struct KernelResult {
  std::string kernel;                      // "matmul q8_0, 1 token"
  std::string isa;                         // the kernel table
  Work work;                               // of one call
  Digest digest = {};                      // of what it computed
  std::vector<double> seconds = {};        // of one call, by round
  std::vector<double> limit_seconds = {};  // the least, at the limits of the round
  bool memory_bound = false;               // which of the two least times is larger, last
};

// Throws Error for an unknown kernel table.
std::vector<KernelResult> RunKernelBench(const KernelBenchOptions& options);

// One line for each kernel whose table does not compute what the first one computes.
std::vector<std::string> KernelMismatches(const std::vector<KernelResult>& results);

Table KernelTableOf(const std::vector<KernelResult>& results);

// The table and what it means, as a part of a page.
std::string KernelMarkdown(const std::vector<KernelResult>& results, const std::string& command);
std::string KernelJson(const std::vector<KernelResult>& results, const std::string& command);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_KERNEL_BENCH_H_
