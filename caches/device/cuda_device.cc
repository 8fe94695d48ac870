// The CUDA device: the runtime's calls, and nothing of its types outside this file. No kernel lies
// here, so that the host's compiler builds it with all of its warnings.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <new>
#include <optional>
#include <utility>

#include "caches/aligned_buffer.h"
#include "caches/check.h"
#include "caches/device.h"

namespace lockstep {
namespace {

// What std::bad_alloc has no room for: the call, and what was asked of it.
class OutOfDeviceMemory final : public std::bad_alloc {
 public:
  explicit OutOfDeviceMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

std::string Text(const char* call, cudaError_t code) {
  return fmt::format("{}: {}", call, cudaGetErrorString(code));
}

void Check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  // The runtime keeps the error for the next call that asks; a launch would take it for its own.
  cudaGetLastError();
  if (code == cudaErrorMemoryAllocation) throw OutOfDeviceMemory(Text(call, code));
  throw DeviceError(Text(call, code));
}

// In destructors, which have nobody to tell: a device that failed says so at its next call too.
void Ignore(cudaError_t code) {
  if (code != cudaSuccess) cudaGetLastError();
}

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(std::byte* address, int64_t bytes) : DeviceMemory(address, bytes) {}
  ~CudaMemory() override { Ignore(cudaFree(address())); }  // which waits for all work
};

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent() { Check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~CudaEvent() override { Ignore(cudaEventDestroy(event_)); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t Get(const DeviceEvent& event) { return static_cast<const CudaEvent&>(event).get(); }

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(cudaGraph_t recorded) {
    const cudaError_t code = cudaGraphInstantiate(&graph_, recorded, 0);
    Ignore(cudaGraphDestroy(recorded));
    Check(code, "cudaGraphInstantiate");
  }
  ~CudaGraph() override { Ignore(cudaGraphExecDestroy(graph_)); }
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

class CudaStream final : public DeviceStream {
 public:
  // Not ordered with the default stream, which nobody uses but Allocate.
  CudaStream() {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~CudaStream() override {
    Ignore(cudaStreamSynchronize(stream_));
    Ignore(cudaStreamDestroy(stream_));
  }

  void Upload(const void* host, std::byte* device, int64_t bytes) override {
    Copy(host, device, bytes, cudaMemcpyHostToDevice, "cudaMemcpyAsync to the device");
  }
  void Download(const std::byte* device, void* host, int64_t bytes) override {
    Copy(device, host, bytes, cudaMemcpyDeviceToHost, "cudaMemcpyAsync to the host");
  }
  void Copy(const std::byte* from, std::byte* to, int64_t bytes) override {
    Copy(from, to, bytes, cudaMemcpyDeviceToDevice, "cudaMemcpyAsync on the device");
  }
  void Fill(std::byte* device, unsigned char value, int64_t bytes) override {
    if (bytes == 0) return;
    Check(cudaMemsetAsync(device, value, static_cast<size_t>(bytes), stream_), "cudaMemsetAsync");
  }

  void Launch(const DeviceKernel& kernel, const DeviceGrid& grid, const void* args) override {
    if (grid.blocks() == 0) return;
    if (kernel.launch_cuda == nullptr) {
      throw DeviceError(fmt::format("kernel {} is for the host executor alone", kernel.name));
    }
    const auto code = static_cast<cudaError_t>(kernel.launch_cuda(grid, args, stream_));
    if (code != cudaSuccess) throw DeviceError(Text(kernel.name, code));
  }

  void Record(DeviceEvent* event) override {
    Check(cudaEventRecord(Get(*event), stream_), "cudaEventRecord");
  }
  void Wait(const DeviceEvent& event) override {
    Check(cudaStreamWaitEvent(stream_, Get(event), 0), "cudaStreamWaitEvent");
  }

  void BeginCapture() override {
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  std::unique_ptr<DeviceGraph> EndCapture() override {
    cudaGraph_t recorded = nullptr;
    Check(cudaStreamEndCapture(stream_, &recorded), "cudaStreamEndCapture");
    return std::make_unique<CudaGraph>(recorded);
  }
  void Launch(const DeviceGraph& graph) override {
    Check(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).get(), stream_), "cudaGraphLaunch");
  }

  void Synchronize() override { Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  void Copy(const void* from, void* to, int64_t bytes, cudaMemcpyKind kind, const char* call) {
    if (bytes == 0) return;
    Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_), call);
  }

  cudaStream_t stream_ = nullptr;
};

// What AlignedBuffer does with memory that is allocated now.
std::optional<unsigned char> PoisonOfNewMemory() {
  if (MemoryWatch::Current() != nullptr) return MemoryWatch::Current()->options().poison;
  if (kPoisonOnAllocation) return kPoisonByte;
  return std::nullopt;
}

class CudaDevice final : public Device {
 public:
  std::string_view name() const override { return "cuda:0"; }

  std::string Description() const override {
    cudaDeviceProp properties = {};
    Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    return fmt::format("{}, sm_{}{}, {:.1f} GiB", properties.name, properties.major,
                       properties.minor,
                       static_cast<double>(properties.totalGlobalMem) / (1024.0 * 1024.0 * 1024.0));
  }

  int64_t FreeBytes() const override {
    size_t free = 0;
    size_t total = 0;
    Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<int64_t>(free);
  }

  std::unique_ptr<DeviceMemory> Allocate(int64_t bytes) override {
    LS_CHECK(bytes >= 0, "{} bytes", bytes);
    void* address = nullptr;
    Check(cudaMalloc(&address, static_cast<size_t>(bytes)), "cudaMalloc");
    auto memory = std::make_unique<CudaMemory>(static_cast<std::byte*>(address), bytes);
    if (const auto poison = PoisonOfNewMemory(); poison && bytes > 0) {
      Check(cudaMemset(address, *poison, static_cast<size_t>(bytes)), "cudaMemset");
      Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    return memory;
  }

  std::unique_ptr<DeviceStream> NewStream() override { return std::make_unique<CudaStream>(); }
  std::unique_ptr<DeviceEvent> NewEvent() override { return std::make_unique<CudaEvent>(); }

  std::optional<double> Milliseconds(const DeviceEvent& from, const DeviceEvent& to) override {
    float elapsed = 0.0f;
    Check(cudaEventElapsedTime(&elapsed, Get(from), Get(to)), "cudaEventElapsedTime");
    return static_cast<double>(elapsed);
  }

  void Synchronize(const DeviceEvent& event) override {
    Check(cudaEventSynchronize(Get(event)), "cudaEventSynchronize");
  }
};

std::string FindWhyNoCudaDevice() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) {
    cudaGetLastError();
    return Text("cudaGetDeviceCount", code);
  }
  return count > 0 ? "" : "cudaGetDeviceCount: no device";
}

}  // namespace

std::string WhyNoCudaDevice() {
  static const std::string why = FindWhyNoCudaDevice();
  return why;
}

std::shared_ptr<Device> MakeCudaDevice() {
  if (!WhyNoCudaDevice().empty()) return nullptr;
  return std::make_shared<CudaDevice>();
}

}  // namespace lockstep
