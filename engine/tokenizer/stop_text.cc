#include <algorithm>

#include "engine/tokenizer.h"

namespace lockstep {

std::string StopText::Push(std::string_view text) {
  if (stopped_) return {};
  pending_ += text;
  size_t end = pending_.npos;
  for (const std::string& stop : stops_) {
    if (!stop.empty()) end = std::min(end, pending_.find(stop));
  }
  stopped_ = end != pending_.npos;
  size_t shown = end;
  for (size_t at = 0; !stopped_; ++at) {  // the first suffix with which a stop may begin
    const std::string_view suffix = std::string_view(pending_).substr(at);
    const auto begins = [&](const std::string& stop) { return stop.starts_with(suffix); };
    shown = at;
    if (suffix.empty() || std::ranges::any_of(stops_, begins)) break;
  }
  std::string out = pending_.substr(0, shown);
  pending_.erase(0, shown);
  return out;
}

std::string StopText::Flush() {
  std::string rest = stopped_ ? std::string() : std::move(pending_);
  pending_.clear();
  stopped_ = false;
  return rest;
}

}  // namespace lockstep
