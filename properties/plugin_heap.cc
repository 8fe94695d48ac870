#include "properties/plugin_heap.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <string_view>

#include "caches/check.h"

namespace lockstep {
namespace {

// Plug-ins allocate from any thread.
struct State {
  std::mutex mutex;
  std::map<void*, size_t> blocks;  // by address: bytes
  int64_t bytes = 0;
  int64_t until_failure = 0;  // allocations, the failing one included; 0: none fails
  bool failed = false;
  std::optional<std::byte> fill;
  int32_t replaced = 0;
};

State& state() {
  static State* const the_state = new State;  // outlives every plug-in
  return *the_state;
}

bool MayAllocate() {
  const std::lock_guard lock(state().mutex);
  if (state().until_failure == 0 || --state().until_failure > 0) return true;
  state().failed = true;
  errno = ENOMEM;
  return false;
}

void* Added(void* block, size_t bytes, bool may_fill = true) {
  if (block == nullptr) return nullptr;
  const std::lock_guard lock(state().mutex);
  state().blocks[block] = bytes;
  state().bytes += static_cast<int64_t>(bytes);
  if (may_fill && state().fill) std::memset(block, static_cast<int>(*state().fill), bytes);
  return block;
}

// Nothing for a block that was allocated out of sight.
std::optional<size_t> Removed(void* block, bool may_fill = true) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().blocks.find(block);
  if (found == state().blocks.end()) return std::nullopt;
  const size_t bytes = found->second;
  if (may_fill && state().fill) std::memset(block, static_cast<int>(*state().fill), bytes);
  state().bytes -= static_cast<int64_t>(bytes);
  state().blocks.erase(found);
  return bytes;
}

// ---- What the imports become ---------------------------------------------------------------

void* Malloc(size_t bytes) { return MayAllocate() ? Added(std::malloc(bytes), bytes) : nullptr; }

void* Calloc(size_t count, size_t size) {
  return MayAllocate() ? Added(std::calloc(count, size), count * size, false) : nullptr;
}

void Free(void* block) {
  Removed(block);
  std::free(block);
}

void* Realloc(void* block, size_t bytes) {
  if (!MayAllocate()) return nullptr;
  const auto before = Removed(block, false);
  void* moved = std::realloc(block, bytes);
  if (moved != nullptr) return Added(moved, bytes, false);
  if (bytes > 0 && before) Added(block, *before, false);
  return nullptr;
}

void* Reallocarray(void* block, size_t count, size_t size) {
  size_t bytes = 0;
  if (!__builtin_mul_overflow(count, size, &bytes)) return Realloc(block, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* AlignedAlloc(size_t alignment, size_t bytes) {
  return MayAllocate() ? Added(std::aligned_alloc(alignment, bytes), bytes) : nullptr;
}

void* Memalign(size_t alignment, size_t bytes) {
  return MayAllocate() ? Added(memalign(alignment, bytes), bytes) : nullptr;
}

int PosixMemalign(void** block, size_t alignment, size_t bytes) {
  if (!MayAllocate()) return ENOMEM;
  const int error = posix_memalign(block, alignment, bytes);
  if (error == 0) Added(*block, bytes);
  return error;
}

void* Mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (!MayAllocate()) return MAP_FAILED;
  void* block = mmap(address, bytes, protection, flags, file, offset);
  return block == MAP_FAILED ? block : Added(block, bytes, false);
}

// Of a mapping that is given back in pieces, the first piece counts.
int Munmap(void* address, size_t bytes) {
  Removed(address, false);
  return munmap(address, bytes);
}

void* New(size_t bytes) {
  if (!MayAllocate()) throw std::bad_alloc();
  return Added(::operator new(bytes), bytes);
}

void* NewNothrow(size_t bytes, const std::nothrow_t& nothrow) {
  return MayAllocate() ? Added(::operator new(bytes, nothrow), bytes) : nullptr;
}

void* NewAligned(size_t bytes, std::align_val_t alignment) {
  if (!MayAllocate()) throw std::bad_alloc();
  return Added(::operator new(bytes, alignment), bytes);
}

void Delete(void* block) {
  Removed(block);
  ::operator delete(block);
}

void DeleteSized(void* block, size_t) { Delete(block); }

void DeleteAligned(void* block, std::align_val_t alignment) {
  Removed(block);
  ::operator delete(block, alignment);
}

void DeleteSizedAligned(void* block, size_t, std::align_val_t alignment) {
  DeleteAligned(block, alignment);
}

struct Import {
  std::string_view name;  // of the symbol
  void* becomes;
};

template <typename Function>
void* Address(Function* function) {
  return reinterpret_cast<void*>(function);
}

// Names with a type in them are the C++ ABI's; m is a size_t of 64 bits.
std::span<const Import> Imports() {
  static const Import imports[] = {
      {"malloc", Address(Malloc)},
      {"calloc", Address(Calloc)},
      {"realloc", Address(Realloc)},
      {"reallocarray", Address(Reallocarray)},
      {"aligned_alloc", Address(AlignedAlloc)},
      {"memalign", Address(Memalign)},
      {"posix_memalign", Address(PosixMemalign)},
      {"free", Address(Free)},
      {"mmap", Address(Mmap)},
      {"mmap64", Address(Mmap)},
      {"munmap", Address(Munmap)},
      {"_Znwm", Address(New)},
      {"_Znam", Address(New)},
      {"_ZnwmRKSt9nothrow_t", Address(NewNothrow)},
      {"_ZnamRKSt9nothrow_t", Address(NewNothrow)},
      {"_ZnwmSt11align_val_t", Address(NewAligned)},
      {"_ZnamSt11align_val_t", Address(NewAligned)},
      {"_ZdlPv", Address(Delete)},
      {"_ZdaPv", Address(Delete)},
      {"_ZdlPvm", Address(DeleteSized)},
      {"_ZdaPvm", Address(DeleteSized)},
      {"_ZdlPvSt11align_val_t", Address(DeleteAligned)},
      {"_ZdaPvSt11align_val_t", Address(DeleteAligned)},
      {"_ZdlPvmSt11align_val_t", Address(DeleteSizedAligned)},
      {"_ZdaPvmSt11align_val_t", Address(DeleteSizedAligned)},
  };
  return imports;
}

// ---- Relocation tables (System V ABI, chapter "Dynamic Linking") ---------------------------

class LoadedObject {
 public:
  explicit LoadedObject(const link_map& map) : map_(map) {
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) symbols_ = At<const ElfW(Sym)>(*entry);
      if (entry->d_tag == DT_STRTAB) names_ = At<const char>(*entry);
      if (entry->d_tag == DT_RELA) data_ = At<const ElfW(Rela)>(*entry);
      if (entry->d_tag == DT_RELASZ) data_bytes_ = entry->d_un.d_val;
      if (entry->d_tag == DT_JMPREL) calls_ = At<const ElfW(Rela)>(*entry);
      if (entry->d_tag == DT_PLTRELSZ) calls_bytes_ = entry->d_un.d_val;
    }
  }

  int32_t Replace() {
    if (symbols_ == nullptr || names_ == nullptr) return 0;
    return Replace(data_, data_bytes_) + Replace(calls_, calls_bytes_);
  }

 private:
  // The loader has added the base address where it uses an entry itself.
  template <typename T>
  T* At(const ElfW(Dyn) & entry) const {
    return reinterpret_cast<T*>(entry.d_un.d_ptr);
  }

  int32_t Replace(const ElfW(Rela) * relocations, size_t bytes) {
    int32_t replaced = 0;
    for (size_t i = 0; relocations != nullptr && i < bytes / sizeof *relocations; ++i) {
      const size_t symbol = ELF64_R_SYM(relocations[i].r_info);
      if (symbol == 0) continue;
      const std::string_view name = names_ + symbols_[symbol].st_name;
      for (const Import& import : Imports()) {
        if (import.name != name) continue;
        Store(map_.l_addr + relocations[i].r_offset, import.becomes);
        ++replaced;
      }
    }
    return replaced;
  }

  // The loader may have made the table read-only.
  static void Store(uintptr_t where, void* value) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    void* first = reinterpret_cast<void*>(where / page * page);
    LS_CHECK(mprotect(first, page, PROT_READ | PROT_WRITE) == 0, "mprotect");
    *reinterpret_cast<void**>(where) = value;
  }

  const link_map& map_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  const ElfW(Rela) * data_ = nullptr;
  const ElfW(Rela) * calls_ = nullptr;
  size_t data_bytes_ = 0;
  size_t calls_bytes_ = 0;
};

}  // namespace

int32_t PluginHeap::Watch(const PluginLibrary& plugin) {
  if (state().replaced > 0 || plugin.handle() == nullptr) return state().replaced;
  link_map* map = nullptr;
  if (dlinfo(plugin.handle(), RTLD_DI_LINKMAP, &map) != 0) return 0;
  // What came with a library was loaded after it; what was there before serves the harness too.
  for (; map != nullptr; map = map->l_next) state().replaced += LoadedObject(*map).Replace();
  return state().replaced;
}

void PluginHeap::FailAt(int64_t n) {
  const std::lock_guard lock(state().mutex);
  state().until_failure = n;
  state().failed = false;
}

bool PluginHeap::failed() {
  const std::lock_guard lock(state().mutex);
  return state().failed;
}

void PluginHeap::FillWith(std::optional<std::byte> byte) {
  const std::lock_guard lock(state().mutex);
  state().fill = byte;
}

PluginHeap::Live PluginHeap::live() {
  const std::lock_guard lock(state().mutex);
  return {static_cast<int64_t>(state().blocks.size()), state().bytes};
}

}  // namespace lockstep
