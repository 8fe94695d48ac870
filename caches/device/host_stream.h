// Streams, events and graphs of the host executor: what was enqueued, and how far it came.
#ifndef LOCKSTEP_CACHES_DEVICE_HOST_STREAM_H_
#define LOCKSTEP_CACHES_DEVICE_HOST_STREAM_H_

#include <exception>
#include <memory>
#include <vector>

#include "caches/device.h"
#include "caches/device/access_log.h"

namespace lockstep {

class HostExecutor;

class HostEvent final : public DeviceEvent {
 public:
  explicit HostEvent(HostExecutor* executor) : executor_(*executor) {}
  ~HostEvent() override;

  int64_t recorded = 0;             // how often it was enqueued
  int64_t reached = 0;              // how often that ran
  std::exception_ptr error;         // of a stream that failed before it reached the event
  std::vector<StreamClock> clocks;  // checked mode: what came before, each time it was reached

 private:
  HostExecutor& executor_;
};

// One piece of a stream's work. Outside checked mode, enqueuing one allocates nothing.
struct HostWork {
  enum class Kind : uint8_t { kUpload, kDownload, kCopy, kFill, kLaunch, kRecord, kWait };
  Kind kind = Kind::kCopy;
  unsigned char value = 0;  // of a fill
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t bytes = 0;
  const DeviceKernel* kernel = nullptr;
  DeviceGrid grid;
  HostEvent* event = nullptr;
  int64_t count = 0;    // of the event that is recorded or waited for
  uint64_t number = 0;  // of all work of the device
  // Checked mode: what the host had waited for when it enqueued this.
  std::shared_ptr<const StreamClock> host;
  alignas(16) std::byte args[kArgsBytes] = {};
};

class HostGraph final : public DeviceGraph {
 public:
  std::vector<HostWork> work;
};

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
  HostWork Pop();

  // What the executor keeps with a stream.
  int32_t number = 0;        // checked mode: among the streams that are alive
  std::exception_ptr error;  // once set, later work is dropped
  StreamClock clock;         // checked mode: what came before the stream's end

 private:
  void Enqueue(HostWork work);
  void Transfer(HostWork::Kind kind, const std::byte* from, std::byte* to, int64_t bytes);

  HostExecutor& executor_;
  std::vector<HostWork> queue_;  // a ring
  size_t first_ = 0;
  size_t count_ = 0;
  std::unique_ptr<HostGraph> capture_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_DEVICE_HOST_STREAM_H_
