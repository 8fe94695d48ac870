// A device: memory that only its kernels may touch, and streams of work on it.
//
// There are two. A CUDA device (when the build found a CUDA Toolkit and the machine has a GPU) and
// the host executor, which runs the same kernels (caches/device_kernel.h) on the CPU and is there
// on every machine. The bits are the same; the executor can besides order everything that the CUDA
// model leaves open by a seed, so that a missing wait or barrier shows as a difference.
//
// The model is CUDA's. A stream runs its work in order and later than the call that enqueues it:
//   * what an Upload reads, it reads when it runs: the host memory must stay as it is until the
//     stream was synchronised, or an event after it was;
//   * what a Download writes is there after the same wait;
//   * two streams know nothing of each other but for events.
// Enqueuing allocates nothing once the stream exists (the executor's checked mode apart), and may
// wait: for room in a queue, or, on a GPU, for a copy from or to pageable memory.
//
// Errors: std::bad_alloc when device memory runs out, DeviceError, with the name of the call that
// failed, for everything else. Work that fails comes out of Synchronize, and its stream is done
// for: Synchronize throws the first error each time, and later work of the stream, and of streams
// that wait for an event of it, is dropped. Other streams and devices go on (a GPU is stricter:
// after the fault of a kernel everything on it fails).
//
// A device outlives what belongs to it. Threads: a device may be used by several threads at once, a
// stream, an event or a graph by one at a time. Const calls of caches, which may come from several
// threads and share a stream, hold Device::reading().
#ifndef LOCKSTEP_CACHES_DEVICE_H_
#define LOCKSTEP_CACHES_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "caches/device_kernel.h"

namespace lockstep {

// A call of the device's runtime failed: "cudaMemcpyAsync: an illegal memory access ...".
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes on a device. The address is for kernels and copies; the host must not follow it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;  // after the work that was enqueued so far
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* address() const { return address_; }  // 64-byte aligned
  int64_t bytes() const { return bytes_; }

 protected:
  DeviceMemory(std::byte* address, int64_t bytes) : address_(address), bytes_(bytes) {}

 private:
  std::byte* address_;
  int64_t bytes_;
};

// A point in a stream's work.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

 protected:
  DeviceEvent() = default;
};

// Recorded work that runs as a whole, with the arguments that it was recorded with: what changes
// from run to run has to be read from device memory.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

 protected:
  DeviceGraph() = default;
};

class DeviceStream {
 public:
  virtual ~DeviceStream() { *pointer_ = nullptr; }  // after its work
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  // `device` addresses are of DeviceMemory, with an offset; ranges lie inside one memory.
  virtual void Upload(const void* host, std::byte* device, int64_t bytes) = 0;
  virtual void Download(const std::byte* device, void* host, int64_t bytes) = 0;
  virtual void Copy(const std::byte* from, std::byte* to, int64_t bytes) = 0;  // not overlapping
  virtual void Fill(std::byte* device, unsigned char value, int64_t bytes) = 0;

  // A launch of no blocks is no launch.
  virtual void Launch(const DeviceKernel& kernel, const DeviceGrid& grid, const void* args) = 0;

  virtual void Record(DeviceEvent* event) = 0;      // the event's point is now, once more
  virtual void Wait(const DeviceEvent& event) = 0;  // later work starts after the event's point

  // Between these calls work of this stream is recorded and not run. In between nothing is
  // synchronised, allocated or freed, and no event is waited for that was recorded before. The
  // addresses of a recorded Upload or Download are the same in each run.
  virtual void BeginCapture() = 0;
  virtual std::unique_ptr<DeviceGraph> EndCapture() = 0;
  virtual void Launch(const DeviceGraph& graph) = 0;

  // Returns when all work of this stream is done. Throws DeviceError when some of it failed.
  virtual void Synchronize() = 0;

  // For who has to wait for this stream's work later on: null once the stream is gone, and with it
  // all its work is done.
  const std::shared_ptr<DeviceStream* const>& self() const { return self_; }

 protected:
  DeviceStream() : pointer_(std::make_shared<DeviceStream*>(this)), self_(pointer_) {}

 private:
  std::shared_ptr<DeviceStream*> pointer_;
  std::shared_ptr<DeviceStream* const> self_;
};

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // "host-executor", "cuda:0".
  virtual std::string_view name() const = 0;
  // For people: "host executor", "NVIDIA H200, sm_90, 139.8 GiB".
  virtual std::string Description() const = 0;
  virtual int64_t FreeBytes() const = 0;  // as far as the system tells

  // Uninitialised, or poisoned as an AlignedBuffer is. Throws std::bad_alloc.
  virtual std::unique_ptr<DeviceMemory> Allocate(int64_t bytes) = 0;
  virtual std::unique_ptr<DeviceStream> NewStream() = 0;
  virtual std::unique_ptr<DeviceEvent> NewEvent() = 0;

  // Milliseconds between two points whose streams were synchronised; nothing on a device without a
  // clock of its own.
  virtual std::optional<double> Milliseconds(const DeviceEvent& from, const DeviceEvent& to) = 0;

  virtual void Synchronize(const DeviceEvent& event) = 0;

  std::mutex& reading() { return reading_; }

 protected:
  Device() = default;

 private:
  std::mutex reading_;
};

// Elements on a device.
template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device& device, int64_t count)
      : memory_(device.Allocate(count * static_cast<int64_t>(sizeof(T)))), count_(count) {}

  int64_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  std::byte* address(int64_t index = 0) const {
    return memory_->address() + index * static_cast<int64_t>(sizeof(T));
  }

  // What kernels take.
  Global<T> all() const { return {reinterpret_cast<T*>(memory_->address()), count_}; }
  Global<T> part(int64_t first, int64_t count) const {
    return {reinterpret_cast<T*>(memory_->address()) + first, count};
  }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  int64_t count_ = 0;
};

template <typename Kernel>
void Launch(DeviceStream& stream, const DeviceGrid& grid, const typename Kernel::Args& args) {
  stream.Launch(DeviceKernelOf<Kernel>(), grid, &args);
}

// How the host executor orders what a device may order freely.
struct HostExecutorOptions {
  // 0: blocks and threads in order, work as it was enqueued. Else the seed of a random order of
  // blocks, of the threads in each phase, and of the work of several streams.
  uint64_t seed = 0;
  int32_t threads = 1;  // of the host; they share the blocks of a launch. 1 when checked.
  // Every access of a kernel is checked. A DeviceError names kernel, block, thread, phase and place
  //   * when two threads touch one element of a shared array in one phase, or one byte of device
  //     memory in one launch without a barrier between them, and one of the two writes;
  //   * when work of two streams does, without an event or a wait of the host between them;
  //   * when an element of a shared array, or a byte of device memory, is read by a kernel that
  //     nobody wrote, or written between two phases, where all threads would;
  //   * when a kernel's argument does not lie in one memory of the device.
  // What the host does with the memory of an Upload or Download before it is done, nobody sees but
  // in the result, under some seed.
  bool checked = false;
};
std::shared_ptr<Device> MakeHostExecutor(const HostExecutorOptions& options = {});

// The first CUDA device; null when the build has no CUDA or the machine no GPU.
std::shared_ptr<Device> MakeCudaDevice();
// Why MakeCudaDevice gives null: "built without the CUDA Toolkit", "cudaGetDeviceCount: no
// CUDA-capable device is detected". Empty when it does not.
std::string WhyNoCudaDevice();

// "host-executor" or "cuda". Error for another name, and for "cuda" without one.
std::shared_ptr<Device> MakeDevice(std::string_view name);

// What caches use that were not given a device: MakeDevice of the environment variable
// LOCKSTEP_DEVICE, or the host executor. Made once a thread.
const std::shared_ptr<Device>& DefaultDevice();
// Another one like it, for caches that are used by a thread of their own.
std::shared_ptr<Device> NewDefaultDevice();

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_H_
