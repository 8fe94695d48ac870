#include "caches/failing_new.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace lockstep::failing_new {

std::atomic<int64_t> allocations = 0;
std::atomic<int64_t> failing_in = -1;

}  // namespace lockstep::failing_new

namespace {

void* Allocate(std::size_t size, std::size_t alignment) {
  using lockstep::failing_new::failing_in;
  ++lockstep::failing_new::allocations;
  if (failing_in >= 0 && failing_in-- == 0) throw std::bad_alloc();
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
// The array forms too: a sanitizer's own would not come through here.
void* operator new[](std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
