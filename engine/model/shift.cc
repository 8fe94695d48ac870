#include "engine/shift.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "caches/codec.h"
#include "engine/rope_turn.h"

namespace lockstep {
namespace {

void CheckShift(const ModelConfig& config, const DeletedSpan& deleted, const KvCache& cache) {
  const KvGeometry& geometry = cache.geometry();
  if (geometry != config.geometry(geometry.max_length)) {
    throw std::invalid_argument("shift: the cache's geometry is not the model's");
  }
  const int32_t length = cache.current_length();
  for (int32_t layer = 0; layer < geometry.num_layers; ++layer) {
    if (cache.length(layer) == length) continue;
    throw std::invalid_argument(
        fmt::format("shift: layer {} has {} rows, others {}", layer, cache.length(layer), length));
  }
  if (!MayShift(cache)) {
    throw std::invalid_argument(fmt::format("shift: {} forgets rows", cache.name()));
  }
  if (deleted.first >= 0 && deleted.first < deleted.end && deleted.end <= length) return;
  throw std::out_of_range(
      fmt::format("shift: no positions [{}, {}) in {}", deleted.first, deleted.end, length));
}

// Turns a row back by the distance that it moves.
class TurnBack {
 public:
  TurnBack(const ModelConfig& config, const KernelTable& kernels, int32_t distance)
      : config_(config),
        rope_(config.rope_pairing == RopePairing::kHalves ? kernels.rope_halves
                                                          : kernels.rope_interleaved),
        global_(Back(config.rope, distance)) {
    if (config.local_rope) local_ = Back(*config.local_rope, distance);
  }

  void operator()(int32_t layer, float* key) const {
    if (!config_.rotates(layer)) return;
    const RopeTurn& turn = local_ && config_.is_local(layer) ? *local_ : global_;
    rope_(key, config_.num_kv_heads, config_.head_dim, config_.rope.dim, turn.cos.data(),
          turn.sin.data());
  }

 private:
  static RopeTurn Back(const RopeFrequencies& rope, int32_t distance) {
    RopeTurn turn = RopeTurnOver(rope, distance);
    for (float& sin : turn.sin) sin = -sin;
    return turn;
  }

  const ModelConfig& config_;
  decltype(KernelTable::rope_halves) rope_;
  RopeTurn global_;
  std::optional<RopeTurn> local_;
};

// The rows that move, of one layer at a time. All memory is taken before anything is written.
class MovedRows {
 public:
  MovedRows(const KvCache& cache, const DeletedSpan& deleted)
      : deleted_(deleted),
        stride_(static_cast<size_t>(cache.geometry().kv_stride())),
        positions_(static_cast<size_t>(cache.current_length() - deleted.end)),
        keys_(positions_.size() * stride_),
        values_(keys_.size()) {
    std::iota(positions_.begin(), positions_.end(), deleted.first);
    view_.segments.reserve(static_cast<size_t>(cache.current_length()));
  }

  void Read(const KvCache& cache, int32_t layer, const TurnBack& turn_back) {
    cache.View(layer, &view_);
    for (const KvSegment& segment : view_.segments) {
      for (int32_t row = std::max(0, deleted_.end - segment.first); row < segment.count; ++row) {
        const auto at = static_cast<size_t>(segment.first + row - deleted_.end);
        Decode(segment.key_type, segment.keys, row, Row(&keys_, at));
        Decode(segment.value_type, segment.values, row, Row(&values_, at));
        turn_back(layer, Row(&keys_, at).data());
      }
    }
  }

  // As many at a time as an update takes.
  void Write(int32_t layer, KvCache* cache) const {
    const auto most = static_cast<size_t>(cache->max_step_rows());
    for (size_t first = 0; first < positions_.size(); first += most) {
      const size_t count = std::min(most, positions_.size() - first);
      cache->Update(layer, std::span(positions_).subspan(first, count),
                    std::span(keys_).subspan(first * stride_, count * stride_),
                    std::span(values_).subspan(first * stride_, count * stride_));
    }
  }

 private:
  std::span<float> Row(std::vector<float>* rows, size_t at) const {
    return std::span(*rows).subspan(at * stride_, stride_);
  }

  void Decode(RowType type, const std::byte* rows, int32_t row, std::span<float> out) const {
    const auto bytes = static_cast<size_t>(RowBytes(type, static_cast<int64_t>(stride_)));
    DecodeRow(type, {rows + static_cast<size_t>(row) * bytes, bytes}, out);
  }

  DeletedSpan deleted_;
  size_t stride_;
  std::vector<int32_t> positions_;    // where they go, [n]
  std::vector<float> keys_, values_;  // [n, kv_stride]
  KvView view_;
};

}  // namespace

bool MayShift(const KvCache& cache) {
  for (int32_t layer = 0; layer < cache.geometry().num_layers; ++layer) {
    if (cache.attention_window(layer) > 0) return false;
  }
  return true;
}

void ShiftContext(const ModelConfig& config, const KernelTable& kernels, const DeletedSpan& deleted,
                  KvCache* cache) {
  CheckShift(config, deleted, *cache);
  const int32_t length = cache->current_length();
  if (deleted.end == length) return cache->Rollback(deleted.first);
  const TurnBack turn_back(config, kernels, deleted.count());
  MovedRows rows(*cache, deleted);
  // Layer 0's update takes all blocks that others need too, or fails as a whole [U1].
  rows.Read(*cache, 0, turn_back);
  rows.Write(0, cache);
  try {
    for (int32_t layer = 1; layer < config.num_layers; ++layer) {
      rows.Read(*cache, layer, turn_back);
      rows.Write(layer, cache);
    }
  } catch (...) {
    cache->Rollback(deleted.first);
    throw;
  }
  cache->Rollback(length - deleted.count());
}

}  // namespace lockstep
