#include "caches/device/host_stream.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "caches/check.h"
#include "caches/device/host_executor.h"

namespace lockstep {
namespace {

// Pieces of work that a stream keeps before it has to run some.
constexpr size_t kQueueLength = 256;

// What every GPU takes of a launch; of blocks in x more than 31 bits.
//   CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr int32_t kGridMax = 65535;  // in y and in z
constexpr int32_t kThreadsMax = 1024;

}  // namespace

HostEvent::~HostEvent() { executor_.DrainAll(); }

HostStream::HostStream(HostExecutor* executor) : executor_(*executor), queue_(kQueueLength) {
  executor_.Add(this);
}

HostStream::~HostStream() {
  executor_.DrainAll();
  executor_.Remove(this);
}

void HostStream::Enqueue(HostWork work) {
  if (capture_ != nullptr) {
    capture_->work.push_back(std::move(work));
    return;
  }
  const std::lock_guard lock(executor_.mutex());
  if (count_ == queue_.size()) executor_.MakeRoom(*this);
  // Recorded work counts each time that it is enqueued.
  if (work.kind == HostWork::Kind::kRecord) work.count = ++work.event->recorded;
  if (work.kind == HostWork::Kind::kWait) work.count = work.event->recorded;
  work.number = executor_.NextNumber();
  work.host = executor_.host_clock();
  queue_[(first_ + count_++) % queue_.size()] = std::move(work);
}

HostWork HostStream::Pop() {
  HostWork work = std::move(queue_[first_]);
  first_ = (first_ + 1) % queue_.size();
  --count_;
  return work;
}

void HostStream::Transfer(HostWork::Kind kind, const std::byte* from, std::byte* to,
                          int64_t bytes) {
  LS_CHECK(bytes >= 0, "a copy of {} bytes", bytes);
  if (bytes == 0) return;
  HostWork work;
  work.kind = kind;
  work.from = from;
  work.to = to;
  work.bytes = bytes;
  Enqueue(std::move(work));
}

void HostStream::Upload(const void* host, std::byte* device, int64_t bytes) {
  executor_.RequireMemory("Upload", device, bytes);
  Transfer(HostWork::Kind::kUpload, static_cast<const std::byte*>(host), device, bytes);
}

void HostStream::Download(const std::byte* device, void* host, int64_t bytes) {
  executor_.RequireMemory("Download", device, bytes);
  Transfer(HostWork::Kind::kDownload, device, static_cast<std::byte*>(host), bytes);
}

void HostStream::Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  executor_.RequireMemory("Copy", from, bytes);
  executor_.RequireMemory("Copy", to, bytes);
  if (from < to + bytes && to < from + bytes && bytes > 0) {
    throw DeviceError(fmt::format("Copy: {} bytes onto themselves", bytes));
  }
  Transfer(HostWork::Kind::kCopy, from, to, bytes);
}

void HostStream::Fill(std::byte* device, unsigned char value, int64_t bytes) {
  executor_.RequireMemory("Fill", device, bytes);
  if (bytes == 0) return;
  HostWork work;
  work.kind = HostWork::Kind::kFill;
  work.to = device;
  work.value = value;
  work.bytes = bytes;
  Enqueue(std::move(work));
}

void HostStream::Launch(const DeviceKernel& kernel, const DeviceGrid& grid, const void* args) {
  LS_CHECK(grid.x >= 0 && grid.y >= 0 && grid.z >= 0, "grid of {} x {} x {}", grid.x, grid.y,
           grid.z);
  if (grid.blocks() == 0) return;
  if (grid.y > kGridMax || grid.z > kGridMax || kernel.threads > kThreadsMax) {
    throw DeviceError(fmt::format(
        "kernel {}: a grid of {} x {} x {} blocks of {} threads; a GPU takes {} in y and in z, and "
        "{} threads",
        kernel.name, grid.x, grid.y, grid.z, kernel.threads, kGridMax, kThreadsMax));
  }
  HostWork work;
  work.kind = HostWork::Kind::kLaunch;
  work.kernel = &kernel;
  work.grid = grid;
  std::memcpy(work.args, args, static_cast<size_t>(kernel.args_bytes));
  Enqueue(std::move(work));
}

void HostStream::Record(DeviceEvent* event) {
  HostWork work;
  work.kind = HostWork::Kind::kRecord;
  work.event = static_cast<HostEvent*>(event);
  Enqueue(std::move(work));
}

void HostStream::Wait(const DeviceEvent& event) {
  HostWork work;
  work.kind = HostWork::Kind::kWait;
  // Queues hold what was enqueued, not what may be changed: a wait only reads its event.
  work.event = const_cast<HostEvent*>(static_cast<const HostEvent*>(&event));
  Enqueue(std::move(work));
}

void HostStream::BeginCapture() {
  LS_CHECK(capture_ == nullptr, "a capture within a capture");
  capture_ = std::make_unique<HostGraph>();
}

std::unique_ptr<DeviceGraph> HostStream::EndCapture() {
  LS_CHECK(capture_ != nullptr, "no capture was begun");
  return std::move(capture_);
}

void HostStream::Launch(const DeviceGraph& graph) {
  for (const HostWork& work : static_cast<const HostGraph&>(graph).work) Enqueue(work);
}

void HostStream::Synchronize() {
  LS_CHECK(capture_ == nullptr, "synchronised while capturing");
  const std::lock_guard lock(executor_.mutex());
  executor_.Drain(*this);
  executor_.HostWaited(clock);
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
