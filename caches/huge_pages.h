// Memory in pages of 2 MiB, where the system gives them.
//
// A decode step streams all weights and all rows of the cache once. In pages of 4 KiB a good part
// of that time goes into translating addresses.
#ifndef LOCKSTEP_CACHES_HUGE_PAGES_H_
#define LOCKSTEP_CACHES_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace lockstep {

inline constexpr size_t kHugePage = size_t{2} << 20;  // bytes; of x86-64, and of AArch64 mostly

// Asks for the whole huge pages within `memory`, which nobody has touched yet. A wish: where the
// system does not heed it, the same memory comes in small pages.
void AskForHugePages(void* memory, size_t bytes);

// Of `memory`, the bytes that lie in huge pages now, as /proc/self/smaps says; 0 where it says
// nothing. The system joins neighbouring mappings, so this is an upper bound.
int64_t HugePageBytes(const void* memory, size_t bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_HUGE_PAGES_H_
