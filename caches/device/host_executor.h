// The host executor: a device whose memory is the host's and whose kernels run on the CPU.
//
// Work is kept in a queue for each stream and runs when somebody waits. What the model leaves open
// is decided by the seed: which stream's work runs next, the order of blocks, the order of threads
// in each phase. With seed 0 everything runs in the order in which it was enqueued.
#ifndef LOCKSTEP_CACHES_DEVICE_HOST_EXECUTOR_H_
#define LOCKSTEP_CACHES_DEVICE_HOST_EXECUTOR_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caches/aligned_buffer.h"
#include "caches/device.h"
#include "caches/random.h"

namespace lockstep {

class HostEvent final : public DeviceEvent {
 public:
  int64_t recorded = 0;  // how often it was enqueued
  int64_t reached = 0;   // how often that ran
};

// One piece of a stream's work. Plain data: enqueuing allocates nothing.
struct HostWork {
  enum class Kind : uint8_t { kCopy, kFill, kLaunch, kRecord, kWait };
  Kind kind = Kind::kCopy;
  unsigned char value = 0;  // of a fill
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t bytes = 0;
  const DeviceKernel* kernel = nullptr;
  DeviceGrid grid;
  HostEvent* event = nullptr;
  int64_t count = 0;  // of the event that is recorded or waited for
  alignas(16) std::byte args[kArgsBytes] = {};
};

class HostGraph final : public DeviceGraph {
 public:
  std::vector<HostWork> work;
};

class HostExecutor;

class HostStream final : public DeviceStream {
 public:
  explicit HostStream(HostExecutor* executor);
  ~HostStream() override;

  void Upload(const void* host, std::byte* device, int64_t bytes) override;
  void Download(const std::byte* device, void* host, int64_t bytes) override;
  void Copy(const std::byte* from, std::byte* to, int64_t bytes) override;
  void Fill(std::byte* device, unsigned char value, int64_t bytes) override;
  void Launch(const DeviceKernel& kernel, const DeviceGrid& grid, const void* args) override;
  void Record(DeviceEvent* event) override;
  void Wait(const DeviceEvent& event) override;
  void BeginCapture() override;
  std::unique_ptr<DeviceGraph> EndCapture() override;
  void Launch(const DeviceGraph& graph) override;
  void Synchronize() override;

  bool empty() const { return count_ == 0; }
  const HostWork& front() const { return queue_[first_]; }
  void Pop();

 private:
  HostWork* Next(HostWork::Kind kind);

  HostExecutor& executor_;
  std::vector<HostWork> queue_;  // a ring
  size_t first_ = 0;
  size_t count_ = 0;
  std::unique_ptr<HostGraph> capture_;
};

class HostExecutor final : public Device {
 public:
  explicit HostExecutor(const HostExecutorOptions& options);

  std::string_view name() const override { return "host-executor"; }
  std::string Description() const override { return "host executor"; }
  int64_t FreeBytes() const override;
  std::unique_ptr<DeviceMemory> Allocate(int64_t bytes) override;
  std::unique_ptr<DeviceStream> NewStream() override;
  std::unique_ptr<DeviceEvent> NewEvent() override;
  std::optional<double> Milliseconds(const DeviceEvent& from, const DeviceEvent& to) override;
  void Synchronize(const DeviceEvent& event) override;

  void Add(HostStream* stream) { streams_.push_back(stream); }
  void Remove(HostStream* stream) { std::erase(streams_, stream); }
  // Runs work, of any stream, until `stream` has none.
  void Drain(const HostStream& stream);
  void DrainAll();

 private:
  bool Runnable(const HostStream& stream) const;
  // One piece of work of a stream that can go on; of `wanted` where there is no choice to make.
  void RunOne(const HostStream* wanted);
  void Run(const HostWork& work);
  void RunKernel(const HostWork& work);

  HostExecutorOptions options_;
  Random random_;
  std::vector<HostStream*> streams_;
  AlignedBuffer<std::byte> shared_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_HOST_EXECUTOR_H_
