#include "caches/device/host_executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "caches/check.h"
#include "caches/device/access_log.h"
#include "caches/device_host_block.h"

namespace lockstep {
namespace {

// Pieces of work that a stream keeps before it has to run some.
constexpr size_t kQueueLength = 256;

class HostMemory final : public DeviceMemory {
 public:
  HostMemory(HostExecutor* executor, AlignedBuffer<std::byte> buffer, int64_t bytes)
      : DeviceMemory(buffer.data(), bytes), executor_(*executor), buffer_(std::move(buffer)) {}
  ~HostMemory() override { executor_.DrainAll(); }

 private:
  HostExecutor& executor_;
  AlignedBuffer<std::byte> buffer_;
};

}  // namespace

void HostBlockRun::FailBounds(const char* what, int64_t index, int64_t size) const {
  throw DeviceError(fmt::format("kernel {}: block ({}, {}, {}), thread {}: element {} of {} of {}",
                                kernel, place[0], place[1], place[2], thread, index, what, size));
}

void HostBlockRun::OnGlobal(const void* address, int32_t bytes, bool writes) {
  const Toucher by = NowRunning();
  const auto earlier = log->Global(reinterpret_cast<uintptr_t>(address), bytes, writes, by);
  if (earlier) FailAccess("global memory", *earlier, by, writes);
}

void HostBlockRun::OnShared(int32_t array, int32_t element, bool writes) {
  const std::string what = fmt::format("element {} of shared array {}", element, array);
  if (writes && thread < 0) {
    throw DeviceError(fmt::format("kernel {}: {} is written outside a phase", kernel, what));
  }
  const Toucher by = NowRunning();
  const AccessLog::SharedFinding finding = log->Shared(array, element, writes, by);
  if (finding.uninitialised) {
    throw DeviceError(
        fmt::format("kernel {}: thread {} reads {}, which nobody wrote", kernel, thread, what));
  }
  if (finding.earlier) FailAccess(what, *finding.earlier, by, writes);
}

Toucher HostBlockRun::NowRunning() const {
  return {.block = block, .phase = thread < 0 ? phase + 1 : phase, .thread = thread};
}

void HostBlockRun::FailAccess(const std::string& what, const Toucher& earlier, const Toucher& by,
                              bool writes) const {
  throw DeviceError(fmt::format(
      "kernel {}: {}: thread {} of block {} {} what thread {} of block {} touched, and no barrier "
      "is in between",
      kernel, what, by.thread, by.block, writes ? "writes" : "reads", earlier.thread,
      earlier.block));
}

HostBlockRun*& HostBlockRun::Current() {
  thread_local HostBlockRun* current = nullptr;
  return current;
}

HostStream::HostStream(HostExecutor* executor) : executor_(*executor), queue_(kQueueLength) {
  executor_.Add(this);
}

HostStream::~HostStream() {
  executor_.DrainAll();
  executor_.Remove(this);
}

HostWork* HostStream::Next(HostWork::Kind kind) {
  HostWork* work = nullptr;
  if (capture_ != nullptr) {
    work = &capture_->work.emplace_back();
  } else {
    if (count_ == queue_.size()) executor_.Drain(*this);
    work = &queue_[(first_ + count_++) % queue_.size()];
  }
  work->kind = kind;
  return work;
}

void HostStream::Pop() {
  first_ = (first_ + 1) % queue_.size();
  --count_;
}

void HostStream::Upload(const void* host, std::byte* device, int64_t bytes) {
  Copy(static_cast<const std::byte*>(host), device, bytes);
}

void HostStream::Download(const std::byte* device, void* host, int64_t bytes) {
  Copy(device, static_cast<std::byte*>(host), bytes);
}

void HostStream::Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  if (bytes == 0) return;
  HostWork* work = Next(HostWork::Kind::kCopy);
  work->from = from;
  work->to = to;
  work->bytes = bytes;
}

void HostStream::Fill(std::byte* device, unsigned char value, int64_t bytes) {
  if (bytes == 0) return;
  HostWork* work = Next(HostWork::Kind::kFill);
  work->to = device;
  work->value = value;
  work->bytes = bytes;
}

void HostStream::Launch(const DeviceKernel& kernel, const DeviceGrid& grid, const void* args) {
  LS_CHECK(grid.x >= 0 && grid.y >= 0 && grid.z >= 0, "grid of {} x {} x {}", grid.x, grid.y,
           grid.z);
  if (grid.blocks() == 0) return;
  HostWork* work = Next(HostWork::Kind::kLaunch);
  work->kernel = &kernel;
  work->grid = grid;
  std::memcpy(work->args, args, static_cast<size_t>(kernel.args_bytes));
}

void HostStream::Record(DeviceEvent* event) {
  HostWork* work = Next(HostWork::Kind::kRecord);
  work->event = static_cast<HostEvent*>(event);
  work->count = ++work->event->recorded;
}

void HostStream::Wait(const DeviceEvent& event) {
  HostWork* work = Next(HostWork::Kind::kWait);
  // Queues hold what was enqueued, not what may be changed: only `reached` of it is ever read.
  work->event = const_cast<HostEvent*>(static_cast<const HostEvent*>(&event));
  work->count = work->event->recorded;
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
  for (const HostWork& work : static_cast<const HostGraph&>(graph).work) *Next(work.kind) = work;
}

void HostStream::Synchronize() {
  LS_CHECK(capture_ == nullptr, "synchronised while capturing");
  executor_.Drain(*this);
}

HostExecutor::HostExecutor(const HostExecutorOptions& options)
    : options_(options), random_(options.seed), shared_(kCheckedSharedBytes) {}

int64_t HostExecutor::FreeBytes() const {
  return int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

std::unique_ptr<DeviceMemory> HostExecutor::Allocate(int64_t bytes) {
  return std::make_unique<HostMemory>(this, AlignedBuffer<std::byte>(bytes), bytes);
}

std::unique_ptr<DeviceStream> HostExecutor::NewStream() {
  return std::make_unique<HostStream>(this);
}

std::unique_ptr<DeviceEvent> HostExecutor::NewEvent() { return std::make_unique<HostEvent>(); }

std::optional<double> HostExecutor::Milliseconds(const DeviceEvent& /*from*/,
                                                 const DeviceEvent& /*to*/) {
  return std::nullopt;
}

void HostExecutor::Synchronize(const DeviceEvent& event) {
  const auto& host = static_cast<const HostEvent&>(event);
  const int64_t count = host.recorded;
  while (host.reached < count) RunOne(nullptr);
}

void HostExecutor::Drain(const HostStream& stream) {
  while (!stream.empty()) RunOne(&stream);
}

void HostExecutor::DrainAll() {
  for (HostStream* stream : streams_) {
    try {
      Drain(*stream);
    } catch (const std::exception&) {
      // Whoever asks for a result of this work gets none; a destructor has nobody to tell.
    }
  }
}

bool HostExecutor::Runnable(const HostStream& stream) const {
  if (stream.empty()) return false;
  const HostWork& work = stream.front();
  return work.kind != HostWork::Kind::kWait || work.event->reached >= work.count;
}

void HostExecutor::RunOne(const HostStream* wanted) {
  const auto runnable = static_cast<size_t>(std::ranges::count_if(
      streams_, [this](const HostStream* stream) { return Runnable(*stream); }));
  LS_CHECK(runnable > 0, "all streams wait for events that nobody records");
  HostStream* next = nullptr;
  if (options_.seed == 0) {
    for (HostStream* stream : streams_) {
      if (Runnable(*stream) && (next == nullptr || stream == wanted)) next = stream;
    }
  } else {
    auto skip = random_.Below(static_cast<uint32_t>(runnable));
    for (HostStream* stream : streams_) {
      if (!Runnable(*stream)) continue;
      if (skip-- > 0) continue;
      next = stream;
      break;
    }
  }
  const HostWork work = next->front();
  next->Pop();
  Run(work);
}

void HostExecutor::Run(const HostWork& work) {
  switch (work.kind) {
    case HostWork::Kind::kCopy:
      std::memcpy(work.to, work.from, static_cast<size_t>(work.bytes));
      return;
    case HostWork::Kind::kFill:
      std::memset(work.to, work.value, static_cast<size_t>(work.bytes));
      return;
    case HostWork::Kind::kLaunch:
      RunKernel(work);
      return;
    case HostWork::Kind::kRecord:
      work.event->reached = std::max(work.event->reached, work.count);
      return;
    case HostWork::Kind::kWait:
      return;
  }
}

void HostExecutor::RunKernel(const HostWork& work) {
  const DeviceKernel& kernel = *work.kernel;
  const int64_t blocks = work.grid.blocks();
  // i -> (factor * i + start) mod blocks is a permutation when factor and blocks have no divisor in
  // common: a large prime has none with so few blocks.
  constexpr uint64_t kPrime = 2147483647;
  const auto start = options_.seed == 0 ? 0 : random_.Next() % static_cast<uint64_t>(blocks);
  AccessLog log;
  HostBlockRun run;
  run.log = &log;
  run.shared = shared_.data();
  run.kernel = kernel.name;
  HostBlockRun::Current() = &run;
  for (int64_t i = 0; i < blocks; ++i) {
    const auto at = options_.seed == 0
                        ? i
                        : static_cast<int64_t>((static_cast<uint64_t>(i) * kPrime + start) %
                                               static_cast<uint64_t>(blocks));
    run.place[0] = static_cast<int32_t>(at % work.grid.x);
    run.place[1] = static_cast<int32_t>(at / work.grid.x % work.grid.y);
    run.place[2] = static_cast<int32_t>(at / work.grid.x / work.grid.y);
    run.order = options_.seed == 0 ? 0 : random_.Next();
    run.block = at;
    run.phase = 0;
    run.thread = -1;
    run.arrays = 0;
    log.BeginBlock();
    (options_.checked ? kernel.run_checked : kernel.run)(&run, work.args);
  }
  HostBlockRun::Current() = nullptr;
}

}  // namespace lockstep
