// Blocks of device kernels on the host executor. Included by the .cc file that defines a kernel for
// it, nobody else:
//
//   LOCKSTEP_DEVICE_KERNEL(AddKernel)      // at namespace lockstep
#ifndef LOCKSTEP_CACHES_DEVICE_HOST_BLOCK_H_
#define LOCKSTEP_CACHES_DEVICE_HOST_BLOCK_H_

#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "caches/device_kernel.h"

namespace lockstep {

// Checked mode: what was touched, and what is wrong with it (caches/device/access_log.h).
class AccessLog;
class DeviceMemories;
struct ShadowMemory;

// What the executor knows of the block that it runs.
class HostBlockRun {
 public:
  int32_t place[3] = {};        // x, y, z in the grid
  uint64_t order = 0;           // of the threads in each phase; 0: 0, 1, 2, ...
  std::byte* shared = nullptr;  // kSharedMemoryBytes, and in checked mode kCheckedSharedBytes
  AccessLog* log = nullptr;     // in checked mode
  DeviceMemories* memories = nullptr;
  const char* kernel = nullptr;
  int32_t threads = 0;       // of the kernel
  bool shared_made = false;  // in checked mode
  int32_t phase = 0;         // phases begun
  int32_t thread = -1;       // that runs now; -1 between phases
  int32_t arrays = 0;        // shared arrays made, which is what they are called in messages

  // All of these throw DeviceError, with kernel, block, thread and phase.
  // Index is outside an array of `size` elements.
  [[noreturn]] void FailBounds(const char* what, int64_t index, int64_t size) const;
  // Checked mode: the argument's bytes do not lie in one memory of the device. Null for no bytes.
  ShadowMemory* FindMemory(const void* data, int64_t bytes) const;
  // Checked mode: the access is one that the model forbids.
  void OnGlobal(ShadowMemory* memory, const void* address, int32_t bytes, bool writes);
  void OnShared(int32_t array, int32_t element, bool writes);
  // Checked mode: what a GPU does otherwise, or not at all. A phase of another number of threads
  // than the kernel's; shared arrays that are made twice; an address that is no multiple.
  void OnPhase(int32_t phase_threads) const;
  void OnSharedMade();
  void OnAddress(const void* address, size_t alignment) const;

  // The block that the calling thread runs.
  static HostBlockRun*& Current();

 private:
  std::string Place() const;
  uint32_t At() const;  // Touch::at
  [[noreturn]] void FailOutside(const std::string& what) const;
  template <typename Finding>
  [[noreturn]] void FailAccess(const std::string& what, const Finding& finding, bool writes) const;
};

// A shared array in checked mode takes its elements and no more: their history is in the log.
inline constexpr int32_t kCheckedSharedBytes = 2 * kSharedMemoryBytes;

// Something that behaves like a reference to `T` and tells of each access.
template <typename T, typename Place>
class CheckedRef {
 public:
  CheckedRef(T* at, Place place) : at_(at), place_(place) {}
  CheckedRef(const CheckedRef&) = default;

  operator std::remove_const_t<T>() const {
    place_.Tell(at_, false);
    return *at_;
  }
  const CheckedRef& operator=(const std::remove_const_t<T>& value) const {
    place_.Tell(at_, true);
    *at_ = value;
    return *this;
  }
  const CheckedRef& operator=(const CheckedRef& other) const {
    return *this = static_cast<std::remove_const_t<T>>(other);
  }
  const CheckedRef& operator+=(const std::remove_const_t<T>& value) const {
    return *this = static_cast<T>(*this + value);
  }

 private:
  T* at_;
  Place place_;
};

template <bool kChecked>
class HostBlock {
  struct GlobalPlace {
    HostBlockRun* run;
    ShadowMemory* memory;
    template <typename T>
    void Tell(const T* at, bool writes) const {
      run->OnGlobal(memory, at, static_cast<int32_t>(sizeof(T)), writes);
    }
  };
  struct SharedPlace {
    int32_t array;
    int32_t element;
    template <typename T>
    void Tell(const T*, bool writes) const {
      HostBlockRun::Current()->OnShared(array, element, writes);
    }
  };

 public:
  explicit HostBlock(HostBlockRun* run) : run_(run) {}

  int32_t x() const { return run_->place[0]; }
  int32_t y() const { return run_->place[1]; }
  int32_t z() const { return run_->place[2]; }

  // fn(t) for each thread, then a barrier.
  template <int32_t kThreads, typename Fn>
  void ForThreads(Fn&& fn) const {
    static_assert((kThreads & (kThreads - 1)) == 0, "a power of two");
    if constexpr (kChecked) run_->OnPhase(kThreads);
    ++run_->phase;
    // i -> (odd * i + start) mod kThreads is a permutation.
    const auto odd = static_cast<uint32_t>(run_->order) | 1u;
    const auto start = static_cast<uint32_t>(run_->order >> 32);
    const uint32_t factor = run_->order == 0 ? 1u : odd;
    for (uint32_t i = 0; i < kThreads; ++i) {
      run_->thread = static_cast<int32_t>((factor * i + start) & (kThreads - 1u));
      fn(run_->thread);
    }
    run_->thread = -1;
  }

  template <typename T, int32_t kCount>
  class PerThread {
   public:
    T& operator[](int32_t t) { return values_[t]; }

   private:
    T values_[static_cast<size_t>(kCount)];
  };

  template <typename T, int32_t kCount>
  class Array {
   public:
    Array() : id_(HostBlockRun::Current()->arrays++) {}
    decltype(auto) operator[](int32_t i) {
      if (static_cast<uint32_t>(i) >= static_cast<uint32_t>(kCount)) {
        HostBlockRun::Current()->FailBounds("a shared array", i, kCount);
      }
      if constexpr (kChecked) {
        return CheckedRef<T, SharedPlace>(values_ + i, {id_, i});
      } else {
        return static_cast<T&>(values_[i]);
      }
    }

   private:
    int32_t id_;
    T values_[static_cast<size_t>(kCount)];
  };

  // Made once a block; the elements of its arrays are uninitialised.
  template <typename S>
  S& Shared() const {
    static_assert(sizeof(S) <= kSharedMemoryBytes && std::is_trivially_destructible_v<S>);
    if constexpr (kChecked) run_->OnSharedMade();
    return *new (run_->shared) S;
  }

  template <typename T>
  class Accessor {
   public:
    Accessor(Global<T> memory, HostBlockRun* run) : memory_(memory), run_(run) {
      if constexpr (kChecked) {
        const int64_t bytes = memory.size * static_cast<int64_t>(sizeof(T));
        shadow_ = run->FindMemory(memory.data, bytes);
        run->OnAddress(memory.data, alignof(T));
      }
    }
    int64_t size() const { return memory_.size; }

    decltype(auto) operator[](int64_t i) const {
      Check(i, 1);
      if constexpr (kChecked) {
        return CheckedRef<T, GlobalPlace>(memory_.data + i, {run_, shadow_});
      } else {
        return static_cast<T&>(memory_.data[i]);
      }
    }

    // Of bytes: a `U` at a byte offset that is a multiple of its alignment.
    template <typename U>
    U Load(int64_t offset) const {
      static_assert(sizeof(T) == 1);
      Check(offset, static_cast<int64_t>(sizeof(U)));
      if constexpr (kChecked) {
        run_->OnAddress(memory_.data + offset, alignof(U));
        run_->OnGlobal(shadow_, memory_.data + offset, static_cast<int32_t>(sizeof(U)), false);
      }
      U value;
      std::memcpy(&value, memory_.data + offset, sizeof value);
      return value;
    }
    template <typename U>
    void Store(int64_t offset, U value) const {
      static_assert(sizeof(T) == 1);
      Check(offset, static_cast<int64_t>(sizeof(U)));
      if constexpr (kChecked) {
        run_->OnAddress(memory_.data + offset, alignof(U));
        run_->OnGlobal(shadow_, memory_.data + offset, static_cast<int32_t>(sizeof(U)), true);
      }
      std::memcpy(memory_.data + offset, &value, sizeof value);
    }

   private:
    void Check(int64_t i, int64_t count) const {
      if (i < 0 || i > memory_.size - count) run_->FailBounds("global memory", i, memory_.size);
    }

    Global<T> memory_;
    HostBlockRun* run_;
    ShadowMemory* shadow_ = nullptr;
  };
  template <typename T>
  Accessor<T> Use(Global<T> memory) const {
    return {memory, run_};
  }

 private:
  HostBlockRun* run_;
};

template <typename Kernel, bool kChecked>
void RunHostBlock(HostBlockRun* run, const void* args) {
  Kernel::Run(HostBlock<kChecked>(run), *static_cast<const typename Kernel::Args*>(args));
}

#define LOCKSTEP_DEVICE_KERNEL_OF(Kernel, launch_cuda)                                   \
  template <>                                                                            \
  const DeviceKernel& DeviceKernelOf<Kernel>() {                                         \
    static_assert(sizeof(Kernel::Args) <= kArgsBytes);                                   \
    static_assert(std::is_trivially_copyable_v<Kernel::Args>);                           \
    static constexpr DeviceKernel kKernel = {Kernel::kName,                              \
                                             Kernel::kThreads,                           \
                                             static_cast<int32_t>(sizeof(Kernel::Args)), \
                                             &RunHostBlock<Kernel, false>,               \
                                             &RunHostBlock<Kernel, true>,                \
                                             launch_cuda};                               \
    return kKernel;                                                                      \
  }

// In a build with CUDA the kernel needs its LOCKSTEP_CUDA_KERNEL, in a .cu file of the same target.
#if defined(LOCKSTEP_CUDA)
#define LOCKSTEP_DEVICE_KERNEL(Kernel) LOCKSTEP_DEVICE_KERNEL_OF(Kernel, &LaunchOnCuda<Kernel>)
#else
#define LOCKSTEP_DEVICE_KERNEL(Kernel) LOCKSTEP_DEVICE_KERNEL_OF(Kernel, nullptr)
#endif

// A kernel of a test that no GPU shall see: it breaks the model, or tests the executor itself.
#define LOCKSTEP_HOST_KERNEL(Kernel) LOCKSTEP_DEVICE_KERNEL_OF(Kernel, nullptr)

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_HOST_BLOCK_H_
