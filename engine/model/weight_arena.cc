#include "engine/model/weight_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include "caches/check.h"

namespace lockstep {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kAlignment = kCacheAlignment;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

WeightArena::WeightArena(int64_t bytes) : size_(RoundUp(bytes, kAlignment)) {
  LS_CHECK(bytes >= 0, "{} bytes", bytes);
  if (size_ < kHugePage) {
    plain_ = AlignedBuffer<std::byte>(size_);
    data_ = plain_.data();
    return;
  }
  // One page more, so that the first address can be moved to the start of a huge page.
  mapping_bytes_ = static_cast<size_t>(RoundUp(size_, kHugePage) + kHugePage);
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    plain_ = AlignedBuffer<std::byte>(size_);
    data_ = plain_.data();
    return;
  }
  mapping_ = mapping;
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  const auto skip = (kHugePage - address % kHugePage) % kHugePage;
  data_ = static_cast<std::byte*>(mapping) + skip;
  // A wish: without huge pages the same memory comes in small ones.
  (void)madvise(data_, mapping_bytes_ - skip, MADV_HUGEPAGE);
}

WeightArena::~WeightArena() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

std::span<std::byte> WeightArena::Take(int64_t bytes) {
  LS_CHECK(bytes >= 0 && bytes <= size_ - taken_, "{} bytes of {} left", bytes, size_ - taken_);
  std::byte* begin = data_ + taken_;
  taken_ = std::min(size_, taken_ + RoundUp(bytes, kAlignment));
  return {begin, static_cast<size_t>(bytes)};
}

int64_t WeightArena::HugePageBytes() const {
  if (mapping_ == nullptr) return 0;
  const auto first = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t last = first + static_cast<uintptr_t>(size_);
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  int64_t bytes = 0;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      inside = begin < last && first < end;
    } else if (int64_t kib = 0;
               inside && std::sscanf(line.c_str(), "AnonHugePages: %" SCNd64 " kB", &kib) == 1) {
      bytes += kib * 1024;
    }
  }
  return std::min(bytes, size_);
}

}  // namespace lockstep
