#include "caches/device/access_log.h"

namespace lockstep {

std::optional<Toucher> TouchHistory::Read(const Toucher& by) {
  if (writer_ && Apart(*writer_, by)) return writer_;
  if (reader_ && Apart(*reader_, by)) other_reader_ = reader_;
  reader_ = by;
  return std::nullopt;
}

std::optional<Toucher> TouchHistory::Write(const Toucher& by) {
  for (const std::optional<Toucher>& earlier : {writer_, reader_, other_reader_}) {
    if (earlier && Apart(*earlier, by)) return earlier;
  }
  writer_ = by;
  return std::nullopt;
}

std::optional<Toucher> AccessLog::Global(uintptr_t address, int32_t bytes, bool writes,
                                         const Toucher& by) {
  for (int32_t i = 0; i < bytes; ++i) {
    TouchHistory& history = global_[address + static_cast<uintptr_t>(i)];
    const auto earlier = writes ? history.Write(by) : history.Read(by);
    if (earlier) return earlier;
  }
  return std::nullopt;
}

AccessLog::SharedFinding AccessLog::Shared(int32_t array, int32_t element, bool writes,
                                           const Toucher& by) {
  TouchHistory& history = shared_[{array, element}];
  if (!writes && !history.written()) return {.earlier = std::nullopt, .uninitialised = true};
  return {.earlier = writes ? history.Write(by) : history.Read(by)};
}

}  // namespace lockstep
