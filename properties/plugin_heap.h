// The memory of a plug-in under the harness's hand: counted, filled, refused at will.
//
// It replaces what the plug-in's library, and the libraries that came with it, import from the heap
// (malloc and its kin, mmap, operator new), in their relocation tables. Replacing malloc for the
// whole process instead would starve the harness too, and a sanitizer has done so already; an
// allocator in caches/plugin.h would test only the engines that have one. Not seen is what other
// libraries allocate for the plug-in (getline, std::string) and what is linked into it statically.
#ifndef LOCKSTEP_PROPERTIES_PLUGIN_HEAP_H_
#define LOCKSTEP_PROPERTIES_PLUGIN_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "caches/plugin_cache.h"

namespace lockstep {

// Of this process; for one that judges (isolated_run.h), because what it replaces stays replaced.
class PluginHeap {
 public:
  // Imports that were replaced, now or before; 0: this plug-in's memory cannot be seen. Nothing of
  // it may run meanwhile.
  static int32_t Watch(const PluginLibrary& plugin);

  // The n-th allocation from now fails, and only that one. 0: none does.
  static void FailAt(int64_t n);
  // Whether it has, since FailAt.
  static bool failed();

  // What new memory, except of calloc, holds at first, and freed memory at last. Nothing: as it
  // comes.
  static void FillWith(std::optional<std::byte> byte);

  // What is allocated now.
  struct Live {
    int64_t blocks = 0;
    int64_t bytes = 0;
  };
  static Live live();
};

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_PLUGIN_HEAP_H_
