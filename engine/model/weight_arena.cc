#include "engine/model/weight_arena.h"

#include <algorithm>

#include "caches/check.h"
#include "caches/huge_pages.h"

namespace lockstep {
namespace {

int64_t RoundUp(int64_t bytes) {
  constexpr int64_t kAlignment = kCacheAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

WeightArena::WeightArena(int64_t bytes) {
  LS_CHECK(bytes >= 0, "{} bytes", bytes);
  memory_ = AlignedBuffer<std::byte>(RoundUp(bytes));
}

std::span<std::byte> WeightArena::Take(int64_t bytes) {
  LS_CHECK(bytes >= 0 && bytes <= size() - taken_, "{} bytes of {} left", bytes, size() - taken_);
  std::byte* begin = memory_.data() + taken_;
  taken_ = std::min(size(), taken_ + RoundUp(bytes));
  return {begin, static_cast<size_t>(bytes)};
}

int64_t WeightArena::HugePageBytes() const {
  return lockstep::HugePageBytes(memory_.data(), memory_.size());
}

}  // namespace lockstep
