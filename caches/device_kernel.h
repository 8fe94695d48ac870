// Device kernels from one source: a block program in bulk-synchronous phases, compiled by nvcc for
// a GPU and by the host's compiler for the executor (caches/device.h).
//
//   struct AddKernel {
//     static constexpr char kName[] = "add";
//     static constexpr int32_t kThreads = 128;  // of a block, a power of two
//     struct Args { Global<const float> x; Global<float> y; };
//
//     template <typename Block>
//     LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
//       const auto x = block.Use(args.x);
//       const auto y = block.Use(args.y);
//       block.template ForThreads<kThreads>([&](int32_t t) {  // a phase, then a barrier
//         const int64_t i = block.x() * int64_t{kThreads} + t;
//         if (i < y.size()) y[i] = y[i] + x[i];
//       });
//     }
//   };
//
// Between phases the program is the block's: loops and conditions there are the same for all
// threads. Within a phase a thread may not read what another thread of the block writes. What
// outlives a phase lies in one of
//   * shared arrays, which all threads of the block see:
//       struct Shared { SharedArray<Block, float, 16> lanes; };   (in a template over Block)
//       auto& shared = block.template Shared<S>();                (uninitialised)
//   * values of one thread: typename Block::template PerThread<float, kThreads> acc; acc[t] = 0;
//
// Blocks of a launch run in any order and may not read what others write. An element is accessed by
// x[i]; through a Global or a SharedArray that gives a reference, or in the executor's checked mode
// something that behaves like one: write `float v = x[i]`, not `auto v`.
//
// Arithmetic is engine/ARITHMETIC.md's: plain +, -, *, / and what caches/device_math.h and
// engine/device/math.h have besides.
//
// This header is for nvcc too: no fmt, no standard containers.
#ifndef LOCKSTEP_CACHES_DEVICE_KERNEL_H_
#define LOCKSTEP_CACHES_DEVICE_KERNEL_H_

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define LOCKSTEP_KERNEL __device__ __forceinline__
#else
#define LOCKSTEP_KERNEL inline
#endif

namespace lockstep {

// `size` elements of device memory, as kernels take them. Not owned.
template <typename T>
struct Global {
  T* data = nullptr;
  int64_t size = 0;

  operator Global<const T>() const { return {data, size}; }
};
template <typename T>
struct Global<const T> {
  const T* data = nullptr;
  int64_t size = 0;
};

// What outlives a phase: of the block, of one thread.
template <typename Block, typename T, int32_t kCount>
using SharedArray = typename Block::template Array<T, kCount>;
template <typename Block, typename T, int32_t kCount>
using PerThread = typename Block::template PerThread<T, kCount>;

struct DeviceGrid {
  int32_t x = 1;
  int32_t y = 1;
  int32_t z = 1;
  int64_t blocks() const { return int64_t{x} * y * z; }
};

// Shared memory of a block, at most.
inline constexpr int32_t kSharedMemoryBytes = 48 * 1024;
// Arguments of a kernel, at most.
inline constexpr int32_t kArgsBytes = 512;

class HostBlockRun;  // one block on the executor: caches/device_host_block.h

// A kernel whose type is forgotten.
struct DeviceKernel {
  const char* name = nullptr;
  int32_t threads = 0;
  int32_t args_bytes = 0;
  void (*run)(HostBlockRun* block, const void* args) = nullptr;
  void (*run_checked)(HostBlockRun* block, const void* args) = nullptr;
  // Null in a build without CUDA. `stream` is a cudaStream_t; returns a cudaError_t.
  int (*launch_cuda)(const DeviceGrid& grid, const void* args, void* stream) = nullptr;
};

// Defined for each kernel by LOCKSTEP_DEVICE_KERNEL in a .cc file (caches/device_host_block.h); the
// CUDA part by LOCKSTEP_CUDA_KERNEL in a .cu file (caches/device_cuda_block.h).
template <typename Kernel>
const DeviceKernel& DeviceKernelOf();
template <typename Kernel>
int LaunchOnCuda(const DeviceGrid& grid, const void* args, void* stream);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_KERNEL_H_
