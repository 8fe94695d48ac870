// The single kernels that reports/kernel_bench.h times, each with its data.
#ifndef LOCKSTEP_REPORTS_KERNELS_CASES_H_
#define LOCKSTEP_REPORTS_KERNELS_CASES_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "caches/random.h"
#include "engine/kernels.h"
#include "reports/work.h"

namespace lockstep::internal {

struct KernelCase {
  std::string name;
  Work work;                                    // of one call of run
  std::function<void(const KernelTable&)> run;  // the same every time
  bool uses_table = true;                       // false: the same code whatever the kernel table
  std::function<Digest()> digest;               // of what the last call computed
  // What streams through memory, or the largest part of it, for the limit of just these pages.
  // Empty where what is read is small.
  std::span<const std::byte> streams = {};
};

// A case, made when it is its turn and not before, as its data is large.
using KernelCaseMaker = std::function<KernelCase()>;

// All of them. `array_bytes` is the size of what streams through memory.
std::vector<KernelCaseMaker> KernelCases(int64_t array_bytes, Random random);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_KERNELS_CASES_H_
