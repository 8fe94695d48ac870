// Memory of the caches: 64-byte aligned (a cache line, a ZMM register), owned, never resized.
#ifndef LOCKSTEP_CACHES_ALIGNED_BUFFER_H_
#define LOCKSTEP_CACHES_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>

namespace lockstep {

inline constexpr size_t kCacheAlignment = 64;  // bytes

// Debug builds fill new cache memory with this byte: as F32 it reads 0xffffffff, a NaN, which shows
// in every sum that touches a row nobody wrote.
inline constexpr unsigned char kPoisonByte = 0xff;

#ifdef NDEBUG
inline constexpr bool kPoisonOnAllocation = false;
#else
inline constexpr bool kPoisonOnAllocation = true;
#endif

// Debug builds fill memory whose rows are gone with the poison; release builds do nothing.
template <typename T>
void Poison(std::span<T> rows) {
  if (kPoisonOnAllocation && !rows.empty()) {
    std::memset(rows.data(), kPoisonByte, rows.size_bytes());
  }
}

// `count` elements of a trivial type, uninitialised in release builds and poisoned in debug builds.
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t count) : size_(CheckedSize(count)) {
    data_.reset(static_cast<T*>(::operator new(size_ * sizeof(T), kAlignment)));
    Poison(span());
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t kAlignment{kCacheAlignment};

  struct Deleter {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };

  static size_t CheckedSize(int64_t count) {
    if (count < 0 || count > INT64_MAX / static_cast<int64_t>(sizeof(T))) {
      throw std::invalid_argument("AlignedBuffer: size overflows 64 bits");
    }
    return static_cast<size_t>(count);
  }

  std::unique_ptr<T[], Deleter> data_;
  size_t size_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_ALIGNED_BUFFER_H_
