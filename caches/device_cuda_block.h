// Blocks of device kernels on a GPU. Included by .cu files alone, one for each file of kernels, for
// which nvcc includes its runtime's header by itself:
//
//   LOCKSTEP_CUDA_KERNEL(AddKernel)        // at namespace lockstep
#ifndef LOCKSTEP_CACHES_DEVICE_CUDA_BLOCK_H_
#define LOCKSTEP_CACHES_DEVICE_CUDA_BLOCK_H_

#include "caches/device_kernel.h"

namespace lockstep {

class CudaBlock {
 public:
  LOCKSTEP_KERNEL int32_t x() const { return static_cast<int32_t>(blockIdx.x); }
  LOCKSTEP_KERNEL int32_t y() const { return static_cast<int32_t>(blockIdx.y); }
  LOCKSTEP_KERNEL int32_t z() const { return static_cast<int32_t>(blockIdx.z); }

  template <int32_t kThreads, typename Fn>
  LOCKSTEP_KERNEL void ForThreads(Fn&& fn) const {
    fn(static_cast<int32_t>(threadIdx.x));
    __syncthreads();
  }

  template <typename T, int32_t kCount>
  class PerThread {
   public:
    LOCKSTEP_KERNEL T& operator[](int32_t) { return value_; }

   private:
    T value_;
  };

  template <typename T, int32_t kCount>
  class Array {
   public:
    LOCKSTEP_KERNEL T& operator[](int32_t i) { return values_[i]; }

   private:
    T values_[kCount];
  };

  template <typename S>
  LOCKSTEP_KERNEL S& Shared() const {
    static_assert(sizeof(S) <= kSharedMemoryBytes, "shared memory of a block");
    __shared__ alignas(16) unsigned char storage[sizeof(S)];
    return *reinterpret_cast<S*>(storage);
  }

  template <typename T>
  class Accessor {
   public:
    LOCKSTEP_KERNEL explicit Accessor(Global<T> memory) : memory_(memory) {}
    LOCKSTEP_KERNEL int64_t size() const { return memory_.size; }
    LOCKSTEP_KERNEL T& operator[](int64_t i) const { return memory_.data[i]; }
    template <typename U>
    LOCKSTEP_KERNEL U Load(int64_t offset) const {
      return *reinterpret_cast<const U*>(memory_.data + offset);
    }
    template <typename U>
    LOCKSTEP_KERNEL void Store(int64_t offset, U value) const {
      *reinterpret_cast<U*>(memory_.data + offset) = value;
    }

   private:
    Global<T> memory_;
  };
  template <typename T>
  LOCKSTEP_KERNEL Accessor<T> Use(Global<T> memory) const {
    return Accessor<T>(memory);
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) RunCudaBlock(const typename Kernel::Args args) {
  Kernel::Run(CudaBlock(), args);
}

#define LOCKSTEP_CUDA_KERNEL(Kernel)                                                          \
  template <>                                                                                 \
  int LaunchOnCuda<Kernel>(const DeviceGrid& grid, const void* args, void* stream) {          \
    const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),           \
                      static_cast<unsigned>(grid.z));                                         \
    RunCudaBlock<Kernel><<<blocks, Kernel::kThreads, 0, static_cast<cudaStream_t>(stream)>>>( \
        *static_cast<const Kernel::Args*>(args));                                             \
    return static_cast<int>(cudaGetLastError());                                              \
  }

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_CUDA_BLOCK_H_
