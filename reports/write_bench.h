// What the direct write path saves: for each cache that grants slots, the bytes of K and V that
// Update copies and a slot does not, and the time, beside a plain copy of as many bytes.
#ifndef LOCKSTEP_REPORTS_WRITE_BENCH_H_
#define LOCKSTEP_REPORTS_WRITE_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reports/table.h"

namespace lockstep {

struct WriteBenchOptions {
  std::vector<std::string> caches;  // empty: all registered ones that grant slots on the host
  int32_t tokens = 64;              // a sample, from an empty cache
  int32_t rounds = 15;              // each: update, direct, copy, copy, direct, update
};

struct WriteBenchResult {
  std::string geometry = {};  // "135m"
  std::string cache = {};
  int64_t handed_over = 0;                  // bytes a token that Update was given, as counted
  int64_t formula = 0;                      // 2 * kv_stride * 4 * layers
  bool equal_bits = false;                  // both paths left the same rows
  std::vector<double> update_seconds = {};  // a token, by round
  std::vector<double> direct_seconds = {};
  std::vector<double> copy_seconds = {};
};

// Throws Error for an unknown cache, and for one that grants no slots.
std::vector<WriteBenchResult> RunWriteBench(const WriteBenchOptions& options);

// Whether every result has equal bits, and bytes as the formula says.
bool WriteBenchHolds(const std::vector<WriteBenchResult>& results);

// One row a result: medians, and the saved time over that of the copy with a 95 % interval.
Table WriteTableOf(const std::vector<WriteBenchResult>& results);
std::string WriteMarkdown(const std::vector<WriteBenchResult>& results, const std::string& command);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_WRITE_BENCH_H_
