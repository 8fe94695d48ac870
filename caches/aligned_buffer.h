// Memory of caches and weights: owned, never resized, 64-byte aligned (a cache line, a ZMM
// register) and from 2 MiB on in huge pages.
#ifndef LOCKSTEP_CACHES_ALIGNED_BUFFER_H_
#define LOCKSTEP_CACHES_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>

#include "caches/huge_pages.h"
#include "caches/memory_watch.h"

namespace lockstep {

inline constexpr size_t kCacheAlignment = 64;  // bytes

// Debug builds fill memory that holds no row with this byte: as F32 it reads 0xffffffff, a NaN,
// which shows in every sum that touches a row nobody wrote.
inline constexpr unsigned char kPoisonByte = 0xff;

#ifdef NDEBUG
inline constexpr bool kPoisonOnAllocation = false;
#else
inline constexpr bool kPoisonOnAllocation = true;
#endif

// Whether a buffer that is allocated now is poisoned: in debug builds, and under a MemoryWatch.
inline bool PoisonsNewMemory() { return kPoisonOnAllocation || MemoryWatch::Current() != nullptr; }

// `count` elements of a trivial type, uninitialised unless memory is poisoned. Under a MemoryWatch
// the watch allocates, between guard pages if it says so.
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `piece`: elements that are given out and taken back as one, for the watch; 0: all or none.
  explicit AlignedBuffer(int64_t count, int64_t piece = 0) : size_(CheckedSize(count)) {
    const std::shared_ptr<MemoryRegistry>& registry = MemoryWatch::Current();
    if (registry != nullptr) {
      void* memory = registry->Allocate(size_ * sizeof(T), CheckedSize(piece) * sizeof(T));
      data_ = {static_cast<T*>(memory), Deleter{registry}};
      poison_ = registry->options().poison;
      return;
    }
    const size_t bytes = size_ * sizeof(T);
    const std::align_val_t alignment{bytes < kHugePage ? kCacheAlignment : kHugePage};
    data_ = {static_cast<T*>(::operator new(bytes, alignment)), Deleter{nullptr, alignment}};
    if (bytes >= kHugePage) AskForHugePages(data_.get(), bytes);
    if (kPoisonOnAllocation) poison_ = kPoisonByte;
    Poison(span());
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }

  // Fills memory of this buffer whose rows are gone with the poison; nothing where it has none.
  void Poison(std::span<T> rows) const {
    if (poison_ && !rows.empty()) std::memset(rows.data(), *poison_, rows.size_bytes());
  }
  // What fills memory without rows; nothing where that is left as it is.
  std::optional<unsigned char> poison() const { return poison_; }
  unsigned char poison_byte() const { return poison_.value_or(kPoisonByte); }

 private:
  struct Deleter {
    std::shared_ptr<MemoryRegistry> registry = nullptr;
    std::align_val_t alignment{kCacheAlignment};  // of memory that is no registry's
    void operator()(T* p) const {
      if (registry != nullptr) {
        registry->Free(p);
      } else {
        ::operator delete(p, alignment);
      }
    }
  };

  static size_t CheckedSize(int64_t count) {
    if (count < 0 || count > INT64_MAX / static_cast<int64_t>(sizeof(T))) {
      throw std::invalid_argument("AlignedBuffer: size overflows 64 bits");
    }
    return static_cast<size_t>(count);
  }

  std::unique_ptr<T[], Deleter> data_;
  size_t size_ = 0;
  std::optional<unsigned char> poison_;  // what fills memory without rows
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_ALIGNED_BUFFER_H_
