#include "engine/gguf/allocation_meter.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace lockstep {
namespace {

size_t g_live = 0;
size_t g_peak = 0;

void* Allocate(size_t size) {
  g_peak = std::max(g_peak, g_live + size);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  g_live += ::malloc_usable_size(memory);
  g_peak = std::max(g_peak, g_live);
  return memory;
}

void Release(void* memory) {
  if (memory == nullptr) return;
  g_live -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

AllocationMeter::AllocationMeter() : live_at_start_(g_live) { g_peak = g_live; }

size_t AllocationMeter::peak() const { return g_peak - live_at_start_; }

}  // namespace lockstep

void* operator new(size_t size) { return lockstep::Allocate(size); }
void* operator new[](size_t size) { return lockstep::Allocate(size); }
void operator delete(void* memory) noexcept { lockstep::Release(memory); }
void operator delete[](void* memory) noexcept { lockstep::Release(memory); }
void operator delete(void* memory, size_t) noexcept { lockstep::Release(memory); }
void operator delete[](void* memory, size_t) noexcept { lockstep::Release(memory); }
