#include "oracle/script/choices.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace lockstep::oracle {
namespace {

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kMin = std::numeric_limits<int32_t>::min();

}  // namespace

Choices::Choices(uint64_t seed, int32_t head_dim_multiple, bool forks) : random_(seed) {
  geometry_.num_layers = random_.Between(1, 3);
  geometry_.num_kv_heads = random_.Between(1, 2);
  geometry_.head_dim = head_dim_multiple * random_.Between(1, 3);
  geometry_.max_length = random_.Between(1, 20);
  // Swarm testing: each script leaves out some kinds and prefers others.
  for (uint32_t& weight : weights_) weight = random_.Below(4) == 0 ? 0 : 1 + random_.Below(6);
  if (!forks) weights_[kFork] = 0;
}

Choices::Kind Choices::PickKind() {
  const uint32_t sum = std::accumulate(weights_.begin(), weights_.end(), 0u);
  if (sum == 0) return kStep;
  uint32_t at = random_.Below(sum);
  size_t kind = 0;
  while (at >= weights_[kind]) at -= weights_[kind++];
  return static_cast<Kind>(kind);
}

int32_t Choices::PickLayer() {
  if (!OneIn(24)) return random_.Between(0, geometry_.num_layers - 1);
  const std::array<int32_t, 4> bad = {-1, geometry_.num_layers, kMax, kMin};
  return bad[random_.Below(4)];
}

std::vector<int32_t> Choices::RunOf(int64_t first, int32_t count) const {
  std::vector<int32_t> run;
  for (int64_t p = first; p < first + count && p <= kMax; ++p) {
    run.push_back(static_cast<int32_t>(p));
  }
  return run;
}

// Any order, duplicates.
std::vector<int32_t> Choices::AnyOf(int32_t count) {
  std::vector<int32_t> any;
  for (int32_t i = 0; i < count; ++i) any.push_back(AnyPosition());
  return any;
}

std::vector<int32_t> Choices::PickPositions(int32_t length, int32_t max_step_rows) {
  const int32_t limit = std::min(geometry_.max_length, max_step_rows);
  const int32_t most = std::max(1, OneIn(3) ? limit : limit / 4);
  const int32_t count = random_.Between(1, most);
  switch (random_.Below(16)) {
    case 0:
      return {};
    case 1:
      return RunOf(geometry_.max_length - count, count);  // up to the limit
    case 2:
      return RunOf(geometry_.max_length - count + 1, count);  // one too far
    case 3:
      return {OneIn(2) ? kMax : kMin};
    case 4:
      return OneIn(2) ? RunOf(-1, 2) : RunOf(kMax - 1, 2);
    case 5:
      return AnyOf(OneIn(4) ? limit + 1 : count);  // sometimes more than a step may have
    case 6: {
      std::vector<int32_t> backwards = RunOf(AnyPosition(), count);
      std::ranges::reverse(backwards);
      return backwards;
    }
    case 7:
    case 8:
      return RunOf(AnyPosition(), count);  // often a gap or an overwrite
    case 9:
      return {AnyPosition()};
    case 10:
    case 11:
      return RunOf(std::max(0, length - random_.Between(0, 3)), count);
    default:
      return RunOf(length, OneIn(2) ? 1 : count);  // append
  }
}

int32_t Choices::PickRollback(int32_t length) {
  switch (random_.Below(16)) {
    case 0:
      return length + 1;
    case 1:
      return OneIn(2) ? -1 : kMax;
    case 2:
    case 3:
    case 4:
      return random_.Between(0, length);
    default:
      return std::max(0, length - random_.Between(0, 3));
  }
}

std::vector<float> Choices::PickRows(size_t rows) {
  std::vector<float> values;  // [rows, kv_stride]
  for (size_t row = 0; row < rows; ++row) {
    const uint32_t style = random_.Below(10);
    for (int64_t i = 0; i < geometry_.kv_stride(); ++i) values.push_back(PickFloat(style));
  }
  return values;
}

float Choices::PickFloat(uint32_t style) {
  const auto bits = static_cast<uint32_t>(random_.Next());
  const float ordinary = std::bit_cast<float>((bits & 0x80ffffffu) | 0x3f000000u);
  switch (style) {
    case 0:
      return std::bit_cast<float>(bits & 0x80000000u);  // zeros of both signs
    case 1:
      return ordinary * 1e-8f;
    case 2:
      return ordinary * 1e7f;
    case 3:
      return std::bit_cast<float>(bits);  // anything, NaNs included
    case 4:
      return ordinary * (OneIn(8) ? 100.0f : 0.01f);
    case 5:
      return static_cast<float>(random_.Between(-16, 16)) * 0.5f;  // ties
    default:
      return ordinary;
  }
}

}  // namespace lockstep::oracle
