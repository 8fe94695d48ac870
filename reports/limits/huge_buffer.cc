#include "reports/limits/huge_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace lockstep::internal {

HugeBuffer::HugeBuffer(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  mapped_ = bytes + kHugePage;
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<uintptr_t>(mapping_);
  const size_t skip = (kHugePage - address % kHugePage) % kHugePage;
  bytes_ = {static_cast<std::byte*>(mapping_) + skip, bytes};
  // Advice only: without huge pages the figure is that of ordinary ones.
  madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE);
  std::memset(bytes_.data(), 0x5a, bytes_.size());  // pages of zeros could all be one page
}

HugeBuffer::~HugeBuffer() { munmap(mapping_, mapped_); }

}  // namespace lockstep::internal
