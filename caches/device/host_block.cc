// What a block on the executor says when it breaks the model.
#include <fmt/format.h>

#include "caches/check.h"
#include "caches/device.h"
#include "caches/device/access_log.h"
#include "caches/device_host_block.h"

namespace lockstep {
namespace {

std::string AtPhase(uint32_t at) {
  const Touch touch{.unit = 0, .at = at};
  return touch.thread() < 0 ? fmt::format("before phase {}", touch.phase())
                            : fmt::format("thread {}, phase {}", touch.thread(), touch.phase());
}

}  // namespace

std::string HostBlockRun::Place() const {
  return fmt::format("kernel {}, block ({}, {}, {}), {}", kernel, place[0], place[1], place[2],
                     AtPhase(At()));
}

uint32_t HostBlockRun::At() const {
  LS_CHECK(phase < 1 << 19, "{} phases in kernel {}", phase, kernel);
  const auto current = static_cast<uint32_t>(thread < 0 ? phase + 1 : phase);
  return current << Touch::kThreadBits | static_cast<uint32_t>(thread + 1);
}

void HostBlockRun::FailBounds(const char* what, int64_t index, int64_t size) const {
  throw DeviceError(fmt::format("{}: element {} of {} of {}", Place(), index, what, size));
}

ShadowMemory* HostBlockRun::FindMemory(const void* data, int64_t bytes) const {
  if (bytes == 0) return nullptr;
  ShadowMemory* memory = memories->Find(data, bytes);
  if (memory == nullptr) {
    throw DeviceError(
        fmt::format("{}: an argument of {} bytes lies in no memory of the device", Place(), bytes));
  }
  return memory;
}

void HostBlockRun::OnGlobal(ShadowMemory* memory, const void* address, int32_t bytes, bool writes) {
  const auto first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) - memory->address);
  const auto what = [&] { return fmt::format("byte {} of memory {}", first, memory->number); };
  if (writes && thread < 0) FailOutside(what());
  const auto finding = log->Global(memory, first, bytes, writes, At());
  if (finding) FailAccess(what(), *finding, writes);
}

void HostBlockRun::OnShared(int32_t array, int32_t element, bool writes) {
  const auto what = [&] { return fmt::format("element {} of shared array {}", element, array); };
  if (writes && thread < 0) FailOutside(what());
  const auto finding = log->Shared(array, element, writes, At());
  if (finding) FailAccess(what(), *finding, writes);
}

void HostBlockRun::OnPhase(int32_t phase_threads) const {
  if (phase_threads == threads) return;
  throw DeviceError(
      fmt::format("{}: a phase of {} threads in a block of {}", Place(), phase_threads, threads));
}

void HostBlockRun::OnSharedMade() {
  if (!shared_made) {
    shared_made = true;
    return;
  }
  throw DeviceError(fmt::format("{}: shared arrays are made a second time", Place()));
}

void HostBlockRun::OnAddress(const void* address, size_t alignment) const {
  if (reinterpret_cast<uintptr_t>(address) % alignment == 0) return;
  throw DeviceError(
      fmt::format("{}: an access of {} bytes that is not aligned to them", Place(), alignment));
}

void HostBlockRun::FailOutside(const std::string& what) const {
  throw DeviceError(fmt::format("{}: {} is written outside a phase", Place(), what));
}

template <typename Finding>
void HostBlockRun::FailAccess(const std::string& what, const Finding& finding, bool writes) const {
  if (finding.uninitialised) {
    throw DeviceError(fmt::format("{}: reads {}, which nobody wrote", Place(), what));
  }
  throw DeviceError(fmt::format("{}: {} {}, which was touched by {}, and no {} is in between",
                                Place(), writes ? "writes" : "reads", what,
                                log->Describe(finding.earlier),
                                log->SameWork(finding.earlier) ? "barrier" : "event"));
}

HostBlockRun*& HostBlockRun::Current() {
  thread_local HostBlockRun* current = nullptr;
  return current;
}

}  // namespace lockstep
