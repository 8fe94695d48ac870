// A large block of memory in huge pages, where the system gives them.
#ifndef LOCKSTEP_REPORTS_LIMITS_HUGE_BUFFER_H_
#define LOCKSTEP_REPORTS_LIMITS_HUGE_BUFFER_H_

#include <cstddef>
#include <span>

namespace lockstep::internal {

// Every byte is written, so that every page is there. Throws std::bad_alloc.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }  // begins on a huge page

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_LIMITS_HUGE_BUFFER_H_
