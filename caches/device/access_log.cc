#include "caches/device/access_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace lockstep {

void Join(StreamClock* into, const StreamClock& other) {
  into->resize(std::max(into->size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) (*into)[i] = std::max((*into)[i], other[i]);
}

void DeviceMemories::Add(const void* address, int64_t bytes) {
  ShadowMemory memory{.number = ++count_,
                      .address = reinterpret_cast<uintptr_t>(address),
                      .bytes = bytes,
                      .history = nullptr};
  if (checked_ && bytes > 0) {
    // calloc: pages of memory that no kernel touches are never made.
    void* history = std::calloc(static_cast<size_t>(bytes), sizeof(TouchHistory));
    if (history == nullptr) throw std::bad_alloc();
    memory.history.reset(static_cast<TouchHistory*>(history));
  }
  live_.insert_or_assign(memory.address, std::move(memory));
}

ShadowMemory* DeviceMemories::Find(const void* address, int64_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto found = live_.upper_bound(at);
  if (found == live_.begin()) return nullptr;
  ShadowMemory& memory = (--found)->second;
  const auto offset = static_cast<int64_t>(at - memory.address);
  return offset <= memory.bytes && bytes <= memory.bytes - offset ? &memory : nullptr;
}

void AccessLog::BeginWork(const char* name, int32_t stream, const StreamClock& before) {
  current_ = static_cast<uint32_t>(works_.size());
  before_ = before;
  works_.push_back({.name = name,
                    .stream = stream,
                    .clock = before[static_cast<size_t>(stream)],
                    .first_unit = static_cast<uint32_t>(work_of_unit_.size())});
}

void AccessLog::BeginUnit() { work_of_unit_.push_back(current_); }

bool AccessLog::Ordered(const Touch& earlier, const Touch& now) const {
  if (earlier.unit == now.unit) {
    return earlier.phase() != now.phase() ||
           (earlier.thread() == now.thread() && earlier.thread() >= 0);
  }
  const uint32_t index = work_of_unit_[earlier.unit];
  if (index == current_) return false;
  const Work& work = works_[index];
  const auto stream = static_cast<size_t>(work.stream);
  return stream < before_.size() && before_[stream] >= work.clock;
}

std::optional<AccessLog::Finding> AccessLog::Read(TouchHistory* history, const Touch& now) const {
  if (history->writer.unit == 0) return Finding{.earlier = {}, .uninitialised = true};
  if (!Ordered(history->writer, now)) return Finding{.earlier = history->writer};
  if (history->reader.unit != 0 && !Ordered(history->reader, now)) {
    history->other_reader = history->reader;
  }
  history->reader = now;
  return std::nullopt;
}

std::optional<AccessLog::Finding> AccessLog::Write(TouchHistory* history, const Touch& now) const {
  for (const Touch& earlier : {history->writer, history->reader, history->other_reader}) {
    if (earlier.unit != 0 && !Ordered(earlier, now)) return Finding{.earlier = earlier};
  }
  *history = {.writer = now, .reader = {}, .other_reader = {}};
  return std::nullopt;
}

std::optional<AccessLog::Finding> AccessLog::Global(ShadowMemory* memory, int64_t first,
                                                    int64_t bytes, bool writes, uint32_t at) {
  const Touch now = Now(at);
  for (int64_t i = first; i < first + bytes; ++i) {
    TouchHistory* history = &memory->history[static_cast<size_t>(i)];
    const auto finding = writes ? Write(history, now) : Read(history, now);
    if (finding) return finding;
  }
  return std::nullopt;
}

std::optional<AccessLog::Finding> AccessLog::Shared(int32_t array, int32_t element, bool writes,
                                                    uint32_t at) {
  const auto a = static_cast<size_t>(array);
  const auto e = static_cast<size_t>(element);
  if (a >= shared_.size()) shared_.resize(a + 1);
  if (e >= shared_[a].size()) shared_[a].resize(e + 1);
  const Touch now = Now(at);
  TouchHistory* history = &shared_[a][e];
  // Another block's: its shared memory is gone.
  if (history->writer.unit != now.unit) *history = {};
  return writes ? Write(history, now) : Read(history, now);
}

std::optional<AccessLog::Finding> AccessLog::Copy(ShadowMemory* from, int64_t from_first,
                                                  ShadowMemory* to, int64_t to_first,
                                                  int64_t bytes) {
  const Touch now = Now(0);
  for (int64_t i = 0; i < bytes; ++i) {
    TouchHistory* source =
        from != nullptr ? &from->history[static_cast<size_t>(from_first + i)] : nullptr;
    const bool unwritten = source != nullptr && source->writer.unit == 0;
    if (source != nullptr && !unwritten) {
      if (const auto finding = Read(source, now)) return finding;
    }
    if (to == nullptr) continue;
    TouchHistory* target = &to->history[static_cast<size_t>(to_first + i)];
    if (const auto finding = Write(target, now)) return finding;
    if (unwritten) *target = {};
  }
  return std::nullopt;
}

std::string AccessLog::Describe(const Touch& touch) const {
  const Work& work = works_[work_of_unit_[touch.unit]];
  if (touch.at == 0) return fmt::format("{} on stream {}", work.name, work.stream);
  return fmt::format("kernel {} on stream {}, the {}. block that ran, thread {}", work.name,
                     work.stream, touch.unit - work.first_unit + 1, touch.thread());
}

}  // namespace lockstep
