// MemoryWatch: a mode in which memory of caches is allocated so that misuse shows.
//
//   guard pages  a buffer ends right before an inaccessible page, or begins right after one, so
//                that reading or writing past it dies at the instruction;
//   canaries     what remains of the pages beside the buffer holds a pattern that nobody may
//   change; poison       memory that holds no row, new or given back, holds a byte of the caller's
//   choice:
//                whatever depends on it differs between two choices;
//   registry     the live buffers, in order of allocation, for checks of what an operation wrote.
//
// A watch belongs to the thread that makes it and counts for the buffers which that thread
// allocates while the watch lives; the innermost watch counts. A buffer looks for one when it is
// allocated and never again, so a program without a watch pays nothing.
#ifndef LOCKSTEP_CACHES_MEMORY_WATCH_H_
#define LOCKSTEP_CACHES_MEMORY_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

enum class GuardPages : uint8_t { kNone, kAfter, kBefore };

struct MemoryWatchOptions {
  GuardPages guard = GuardPages::kNone;
  unsigned char poison = 0xff;  // as F32 0xffffffff, a NaN
};

// A live buffer of a watch.
struct WatchedMemory {
  std::byte* data = nullptr;  // 64-byte aligned
  size_t bytes = 0;
  // Bytes that are given out and taken back as one, as blocks of a pool are; 0: all or none.
  size_t piece = 0;
  int64_t serial = 0;  // of its allocation, from 0
};

// The buffers of one watch. A buffer keeps its registry alive, so it may outlive the watch.
class MemoryRegistry {
 public:
  explicit MemoryRegistry(const MemoryWatchOptions& options) : options_(options) {}
  MemoryRegistry(const MemoryRegistry&) = delete;
  MemoryRegistry& operator=(const MemoryRegistry&) = delete;

  const MemoryWatchOptions& options() const { return options_; }
  std::span<const WatchedMemory> live() const { return live_; }

  // Throws std::bad_alloc. The bytes are poisoned.
  std::byte* Allocate(size_t bytes, size_t piece);
  void Free(void* data) noexcept;

  // Buffers beside which a canary has changed, one sentence each: of those that were freed the
  // first one, then all that live.
  std::vector<std::string> Audit() const;

 private:
  // A write beside a buffer, so many bytes from it.
  struct Stray {
    int64_t serial = 0;
    int64_t before = 0;  // 0: none
    int64_t after = 0;
  };

  struct Mapping {
    std::byte* base = nullptr;  // of everything, guard pages included
    size_t bytes = 0;
    std::span<std::byte> before, after;  // canaries around the buffer
  };

  Stray StrayOf(size_t index) const;

  MemoryWatchOptions options_;
  int64_t next_serial_ = 0;
  Stray freed_;  // the first one
  std::vector<WatchedMemory> live_;
  std::vector<Mapping> mappings_;  // of the buffers in live_, in the same order
};

class MemoryWatch {
 public:
  explicit MemoryWatch(const MemoryWatchOptions& options);
  ~MemoryWatch();  // the watch before it counts again
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  std::span<const WatchedMemory> live() const { return registry_->live(); }
  std::vector<std::string> Audit() const { return registry_->Audit(); }

  // Of the calling thread's innermost watch; null without one.
  static const std::shared_ptr<MemoryRegistry>& Current();

 private:
  std::shared_ptr<MemoryRegistry> registry_;
  std::shared_ptr<MemoryRegistry> outer_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_MEMORY_WATCH_H_
