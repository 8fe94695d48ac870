#include "caches/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace lockstep {

void AskForHugePages(void* memory, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (address + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (address + bytes) / kHugePage * kHugePage;
  if (first < last) (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

int64_t HugePageBytes(const void* memory, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t last = first + bytes;
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  int64_t huge = 0;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      inside = begin < last && first < end;
    } else if (int64_t kib = 0;
               inside && std::sscanf(line.c_str(), "AnonHugePages: %" SCNd64 " kB", &kib) == 1) {
      huge += kib * 1024;
    }
  }
  return std::min(huge, static_cast<int64_t>(bytes));
}

}  // namespace lockstep
