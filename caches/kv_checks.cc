#include "caches/kv_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace lockstep {

void CheckGeometry(const KvGeometry& g) {
  if (g.num_layers <= 0 || g.num_kv_heads <= 0 || g.head_dim <= 0 || g.max_length <= 0) {
    throw std::invalid_argument(
        fmt::format("cache geometry must be positive: {} layers, {} KV heads, head_dim {}, "
                    "max_length {}",
                    g.num_layers, g.num_kv_heads, g.head_dim, g.max_length));
  }
  // The largest offset is num_layers * max_length * kv_stride elements of 4 bytes.
  const auto limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / 4;
  const uint64_t stride = static_cast<uint64_t>(g.kv_stride());
  const uint64_t rows = static_cast<uint64_t>(g.num_layers) * static_cast<uint64_t>(g.max_length);
  if (rows > limit / stride) {
    throw std::invalid_argument("cache geometry: its size overflows 64 bits");
  }
}

void CheckLayer(const KvGeometry& geometry, int32_t layer) {
  if (layer < 0 || layer >= geometry.num_layers) {
    throw std::out_of_range(fmt::format("layer {} is outside [0, {})", layer, geometry.num_layers));
  }
}

int32_t CheckUpdate(const KvGeometry& geometry, int32_t layer, std::span<const int32_t> positions,
                    std::span<const float> keys, std::span<const float> values) {
  return CheckUpdate(geometry, layer, positions, keys.size(), values.size());
}

int32_t CheckUpdate(const KvGeometry& geometry, int32_t layer, std::span<const int32_t> positions,
                    size_t key_elements, size_t value_elements) {
  CheckLayer(geometry, layer);
  const auto stride = static_cast<size_t>(geometry.kv_stride());
  const size_t expected = positions.size() * stride;
  if (key_elements != expected || value_elements != expected) {
    throw std::invalid_argument(
        fmt::format("Update: {} positions of {} elements need {} keys and values, got {} and {}",
                    positions.size(), stride, expected, key_elements, value_elements));
  }
  int32_t end = 0;
  for (int32_t position : positions) {
    if (position < 0 || position >= geometry.max_length) {
      throw std::out_of_range(
          fmt::format("Update: position {} is outside [0, {})", position, geometry.max_length));
    }
    end = std::max(end, position + 1);
  }
  return end;
}

void CheckStepRows(std::span<const int32_t> positions, int32_t max_step_rows) {
  if (positions.size() <= static_cast<size_t>(max_step_rows)) return;
  throw std::invalid_argument(
      fmt::format("Update: {} rows in one step, this cache takes {}: split the step or raise "
                  "max_step_rows",
                  positions.size(), max_step_rows));
}

void CheckQuery(int32_t position, int32_t length) {
  if (position >= 0 && position < length) return;
  throw std::out_of_range(
      fmt::format("ViewForQuery: position {} is outside [0, {})", position, length));
}

void CheckRollback(int32_t length, int32_t current_length) {
  if (length < 0 || length > current_length) {
    throw std::out_of_range(
        fmt::format("Rollback: length {} is outside [0, {}]", length, current_length));
  }
}

std::optional<PositionRun> AsRun(std::span<const int32_t> positions, int32_t max_length) {
  if (positions.empty()) return std::nullopt;
  const int64_t first = positions[0];
  const auto count = static_cast<int64_t>(positions.size());
  if (first < 0 || first >= max_length || count > max_length - first) return std::nullopt;
  for (int64_t i = 0; i < count; ++i) {
    if (positions[static_cast<size_t>(i)] != first + i) return std::nullopt;
  }
  return PositionRun{static_cast<int32_t>(first), static_cast<int32_t>(count)};
}

CommitAction DecideCommit(std::span<const int32_t> positions,
                          const std::optional<PositionRun>& reservation, int32_t length,
                          int32_t max_length) {
  if (reservation && AsRun(positions, max_length) == reservation) return CommitAction::kPublish;
  const bool published = std::all_of(positions.begin(), positions.end(),
                                     [&](int32_t p) { return p >= 0 && p < length; });
  if (published) return CommitAction::kNothing;
  throw std::logic_error("CommitSlot: no open reservation for these positions");
}

}  // namespace lockstep
