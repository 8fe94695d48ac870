#include "caches/device/host_executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "caches/aligned_buffer.h"
#include "caches/check.h"

namespace lockstep {
namespace {

class HostMemory final : public DeviceMemory {
 public:
  HostMemory(HostExecutor* executor, AlignedBuffer<std::byte> buffer, int64_t bytes)
      : DeviceMemory(buffer.data(), bytes), executor_(*executor), buffer_(std::move(buffer)) {}
  ~HostMemory() override {
    executor_.DrainAll();
    executor_.Forget(*this);
  }

 private:
  HostExecutor& executor_;
  AlignedBuffer<std::byte> buffer_;
};

const char* NameOf(HostWork::Kind kind) {
  switch (kind) {
    case HostWork::Kind::kUpload:
      return "the upload";
    case HostWork::Kind::kDownload:
      return "the download";
    case HostWork::Kind::kCopy:
      return "the copy";
    default:
      return "the fill";
  }
}

}  // namespace

HostExecutor::HostExecutor(const HostExecutorOptions& options)
    : options_(options),
      random_(options.seed),
      team_(options.checked ? 1 : std::max(options.threads, 1)),
      memories_(options.checked) {
  for (int32_t i = 0; i < team_.size(); ++i) shared_.push_back(std::make_unique<Shared>());
}

std::string HostExecutor::Description() const {
  return fmt::format("host executor, {} thread{}{}{}", team_.size(), team_.size() == 1 ? "" : "s",
                     options_.seed == 0 ? "" : fmt::format(", order {:#x}", options_.seed),
                     options_.checked ? ", every access checked" : "");
}

int64_t HostExecutor::FreeBytes() const {
  return int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

std::unique_ptr<DeviceMemory> HostExecutor::Allocate(int64_t bytes) {
  auto memory = std::make_unique<HostMemory>(this, AlignedBuffer<std::byte>(bytes), bytes);
  const std::lock_guard lock(mutex_);
  memories_.Add(memory->address(), bytes);
  return memory;
}

std::unique_ptr<DeviceStream> HostExecutor::NewStream() {
  return std::make_unique<HostStream>(this);
}

std::unique_ptr<DeviceEvent> HostExecutor::NewEvent() { return std::make_unique<HostEvent>(this); }

std::optional<double> HostExecutor::Milliseconds(const DeviceEvent& /*from*/,
                                                 const DeviceEvent& /*to*/) {
  return std::nullopt;
}

void HostExecutor::Synchronize(const DeviceEvent& event) {
  const std::lock_guard lock(mutex_);
  const auto& host = static_cast<const HostEvent&>(event);
  const int64_t count = host.recorded;
  while (host.reached < count) RunOne();
  if (options_.checked && count > 0) HostWaited(host.clocks[static_cast<size_t>(count - 1)]);
  if (host.error) std::rethrow_exception(host.error);
}

void HostExecutor::Add(HostStream* stream) {
  const std::lock_guard lock(mutex_);
  if (!options_.checked) {
    streams_.push_back(stream);
    return;
  }
  if (free_numbers_.empty()) {
    stream->number = static_cast<int32_t>(clocks_.size());
    clocks_.emplace_back();
  } else {
    stream->number = free_numbers_.back();
    free_numbers_.pop_back();
    stream->clock = clocks_[static_cast<size_t>(stream->number)];
  }
  streams_.push_back(stream);
}

void HostExecutor::Remove(HostStream* stream) {
  const std::lock_guard lock(mutex_);
  std::erase(streams_, stream);
  if (!options_.checked) return;
  HostWaited(stream->clock);
  clocks_[static_cast<size_t>(stream->number)] = std::move(stream->clock);
  free_numbers_.push_back(stream->number);
}

void HostExecutor::Forget(const DeviceMemory& memory) {
  const std::lock_guard lock(mutex_);
  memories_.Remove(memory.address());
}

void HostExecutor::HostWaited(const StreamClock& clock) {
  if (!options_.checked) return;
  StreamClock joined = host_clock_ != nullptr ? *host_clock_ : StreamClock();
  Join(&joined, clock);
  host_clock_ = std::make_shared<const StreamClock>(std::move(joined));
}

void HostExecutor::RequireMemory(const char* call, const std::byte* address, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || memories_.Find(address, bytes) != nullptr) return;
  throw DeviceError(
      fmt::format("{}: {} bytes do not lie in one memory of the device", call, bytes));
}

void HostExecutor::Drain(const HostStream& stream) {
  const std::lock_guard lock(mutex_);
  while (!stream.empty()) RunOne();
}

void HostExecutor::MakeRoom(const HostStream& stream) {
  const HostWork* first = &stream.front();
  while (!stream.empty() && &stream.front() == first) RunOne();
}

void HostExecutor::DrainAll() {
  const std::lock_guard lock(mutex_);
  for (HostStream* stream : streams_) Drain(*stream);
}

bool HostExecutor::Runnable(const HostStream& stream) const {
  if (stream.empty()) return false;
  const HostWork& work = stream.front();
  return stream.error || work.kind != HostWork::Kind::kWait || work.event->reached >= work.count;
}

void HostExecutor::RunOne() {
  const auto runnable = static_cast<size_t>(std::ranges::count_if(
      streams_, [this](const HostStream* stream) { return Runnable(*stream); }));
  LS_CHECK(runnable > 0, "all streams wait for events that nobody records");
  auto skip = options_.seed == 0 ? 0 : random_.Below(static_cast<uint32_t>(runnable));
  HostStream* next = nullptr;
  for (HostStream* stream : streams_) {
    if (!Runnable(*stream)) continue;
    if (options_.seed == 0) {
      if (next == nullptr || stream->front().number < next->front().number) next = stream;
    } else if (skip-- == 0) {
      next = stream;
      break;
    }
  }
  const HostWork work = next->Pop();
  if (next->error) {
    if (work.kind == HostWork::Kind::kRecord) Reach(*next, work);
    return;
  }
  try {
    Run(next, work);
  } catch (...) {
    next->error = std::current_exception();
  }
}

void HostExecutor::Reach(const HostStream& stream, const HostWork& work) {
  HostEvent& event = *work.event;
  event.reached = std::max(event.reached, work.count);
  event.error = stream.error;
  if (!options_.checked) return;
  const auto count = static_cast<size_t>(work.count);
  if (event.clocks.size() < count) event.clocks.resize(count);
  event.clocks[count - 1] = stream.clock;
}

void HostExecutor::Run(HostStream* stream, const HostWork& work) {
  const bool touches = work.kind != HostWork::Kind::kRecord && work.kind != HostWork::Kind::kWait;
  if (options_.checked) {
    const auto number = static_cast<size_t>(stream->number);
    if (stream->clock.size() <= number) stream->clock.resize(number + 1);
    if (work.host != nullptr) Join(&stream->clock, *work.host);
    ++stream->clock[number];
    const bool launch = work.kind == HostWork::Kind::kLaunch;
    if (touches) {
      log_.BeginWork(launch ? work.kernel->name : NameOf(work.kind), stream->number, stream->clock);
      if (!launch) CheckCopy(work);
    }
  }
  switch (work.kind) {
    case HostWork::Kind::kUpload:
    case HostWork::Kind::kDownload:
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
      Reach(*stream, work);
      return;
    case HostWork::Kind::kWait:
      if (work.event->error) std::rethrow_exception(work.event->error);
      if (options_.checked && work.count > 0) {
        Join(&stream->clock, work.event->clocks[static_cast<size_t>(work.count - 1)]);
      }
      return;
  }
}

void HostExecutor::CheckCopy(const HostWork& work) {
  ShadowMemory* from = nullptr;
  ShadowMemory* to = nullptr;
  if (work.kind == HostWork::Kind::kDownload || work.kind == HostWork::Kind::kCopy) {
    from = memories_.Find(work.from, work.bytes);
  }
  if (work.kind != HostWork::Kind::kDownload) to = memories_.Find(work.to, work.bytes);
  const auto offset = [](const ShadowMemory* memory, const std::byte* address) {
    return memory == nullptr
               ? int64_t{0}
               : static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) - memory->address);
  };
  log_.BeginUnit();
  const auto finding =
      log_.Copy(from, offset(from, work.from), to, offset(to, work.to), work.bytes);
  if (!finding) return;
  throw DeviceError(fmt::format("{}: touches what was touched by {}, and no event is in between",
                                NameOf(work.kind), log_.Describe(finding->earlier)));
}

void HostExecutor::RunKernel(const HostWork& work) {
  const auto blocks = static_cast<uint64_t>(work.grid.blocks());
  // i -> (factor * i + first) mod blocks is a permutation when factor and blocks have no divisor in
  // common.
  first_block_ = 0;
  block_factor_ = 1;
  thread_orders_.reset();
  if (options_.seed != 0) {
    LS_CHECK(blocks < uint64_t{1} << 32, "{} blocks", blocks);
    const auto bound = static_cast<uint32_t>(blocks);
    first_block_ = random_.Below(bound);
    block_factor_ = 1 + random_.Below(bound);
    while (std::gcd(block_factor_, blocks) != 1) ++block_factor_;
    thread_orders_ = random_.Split(random_.Next());
  }
  struct Job {
    HostExecutor* executor;
    const HostWork* work;
  } job = {this, &work};
  team_.Run(
      work.grid.blocks(),
      [](void* opaque, int32_t member, int64_t index) {
        const Job& of = *static_cast<Job*>(opaque);
        of.executor->RunBlock(*of.work, member, index);
      },
      &job);
}

void HostExecutor::RunBlock(const HostWork& work, int32_t member, int64_t index) {
  const auto i = static_cast<uint64_t>(index);
  const auto at = static_cast<int64_t>((i * block_factor_ + first_block_) %
                                       static_cast<uint64_t>(work.grid.blocks()));
  HostBlockRun run;
  run.place[0] = static_cast<int32_t>(at % work.grid.x);
  run.place[1] = static_cast<int32_t>(at / work.grid.x % work.grid.y);
  run.place[2] = static_cast<int32_t>(at / work.grid.x / work.grid.y);
  // Of the block's place in the order alone, whichever thread takes it.
  run.order = thread_orders_ ? thread_orders_->Split(i).Next() | 1u : 0;
  run.shared = shared_[static_cast<size_t>(member)]->bytes;
  run.kernel = work.kernel->name;
  run.threads = work.kernel->threads;
  HostBlockRun::Current() = &run;
  if (options_.checked) {
    log_.BeginUnit();
    run.log = &log_;
    run.memories = &memories_;
    work.kernel->run_checked(&run, work.args);
  } else {
    work.kernel->run(&run, work.args);
  }
}

}  // namespace lockstep
