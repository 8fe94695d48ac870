#include "caches/simple_kv_cache.h"

#include <algorithm>

#include "caches/cache_file.h"

namespace lockstep {
namespace {

constexpr int64_t kAlignmentElements = static_cast<int64_t>(kCacheAlignment / sizeof(float));

RowLayout LayoutOf(const KvGeometry& geometry) {
  CheckGeometry(geometry);
  return MakeRowLayout(geometry.max_length, geometry.kv_stride(), kAlignmentElements);
}

StateHeader HeaderOf(const KvGeometry& geometry) {
  return {.kind = "simple", .geometry = geometry};
}

}  // namespace

SimpleKvCache::SimpleKvCache(const KvGeometry& geometry)
    : geometry_(geometry),
      layout_(LayoutOf(geometry)),
      keys_(geometry.num_layers * layout_.layer_stride),
      values_(geometry.num_layers * layout_.layer_stride),
      layers_(static_cast<size_t>(geometry.num_layers)) {}

int32_t SimpleKvCache::length(int32_t layer) const {
  CheckLayer(geometry_, layer);
  return layer_at(layer).length;
}

int32_t SimpleKvCache::current_length() const {
  int32_t longest = 0;
  for (const Layer& layer : layers_) longest = std::max(longest, layer.length);
  return longest;
}

void SimpleKvCache::View(int32_t layer, KvView* view) const {
  CheckLayer(geometry_, layer);
  view->length = layer_at(layer).length;
  view->segments.clear();
  if (view->length == 0) return;
  view->segments.push_back({.first = 0,
                            .count = view->length,
                            .keys = std::as_bytes(KeyRows(layer, 0, view->length)).data(),
                            .values = std::as_bytes(ValueRows(layer, 0, view->length)).data()});
}

void SimpleKvCache::Update(int32_t layer, std::span<const int32_t> positions,
                           std::span<const float> keys, std::span<const float> values) {
  const int32_t end = CheckUpdate(geometry_, layer, positions, keys, values);
  if (positions.empty()) return;
  Layer& state = layer_at(layer);
  state.reservation.reset();
  const auto run = AsRun(positions, geometry_.max_length);
  if (run) {
    ZeroGap(layer, run->first);
    std::copy(keys.begin(), keys.end(), KeyRows(layer, run->first, run->count).begin());
    std::copy(values.begin(), values.end(), ValueRows(layer, run->first, run->count).begin());
  } else {
    ZeroGap(layer, end);
    const auto stride = static_cast<size_t>(geometry_.kv_stride());
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto key = keys.subspan(i * stride, stride);
      const auto value = values.subspan(i * stride, stride);
      std::copy(key.begin(), key.end(), KeyRows(layer, positions[i], 1).begin());
      std::copy(value.begin(), value.end(), ValueRows(layer, positions[i], 1).begin());
    }
  }
  state.length = std::max(state.length, end);
}

std::optional<KvSlot> SimpleKvCache::TryReserveSlot(int32_t layer,
                                                    std::span<const int32_t> positions) {
  CheckLayer(geometry_, layer);
  const auto run = AsRun(positions, geometry_.max_length);
  if (!run) return std::nullopt;
  layer_at(layer).reservation = run;
  return KvSlot{KeyRows(layer, run->first, run->count), ValueRows(layer, run->first, run->count)};
}

void SimpleKvCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  CheckLayer(geometry_, layer);
  Layer& state = layer_at(layer);
  const CommitAction action =
      DecideCommit(positions, state.reservation, state.length, geometry_.max_length);
  if (action == CommitAction::kNothing) return;
  const PositionRun run = *state.reservation;
  state.reservation.reset();
  ZeroGap(layer, run.first);
  state.length = std::max(state.length, run.end());
}

void SimpleKvCache::Rollback(int32_t length) {
  CheckRollback(length, current_length());
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    Layer& state = layer_at(layer);
    state.reservation.reset();
    if (state.length <= length) continue;
    keys_.Poison(KeyRows(layer, length, state.length - length));
    values_.Poison(ValueRows(layer, length, state.length - length));
    state.length = length;
  }
}

void SimpleKvCache::Clear() { Rollback(0); }

std::unique_ptr<KvCache> SimpleKvCache::Fork() {
  auto fork = std::make_unique<SimpleKvCache>(geometry_);
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    Layer& state = layer_at(layer);
    const auto keys = KeyRows(layer, 0, state.length);
    const auto values = ValueRows(layer, 0, state.length);
    std::copy(keys.begin(), keys.end(), fork->KeyRows(layer, 0, state.length).begin());
    std::copy(values.begin(), values.end(), fork->ValueRows(layer, 0, state.length).begin());
    fork->layer_at(layer).length = state.length;
    state.reservation.reset();
  }
  return fork;
}

Digest SimpleKvCache::StorageDigest() const { return DigestOfStoredRows(*this); }

void SimpleKvCache::SaveState(StateWriter* writer) const {
  std::vector<int32_t> lengths;  // [num_layers]
  for (const Layer& layer : layers_) lengths.push_back(layer.length);
  writer->WriteHeader(HeaderOf(geometry_));
  writer->WriteLengths(lengths);
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    writer->WriteBytes(std::as_bytes(KeyRows(layer, 0, layer_at(layer).length)));
    writer->WriteBytes(std::as_bytes(ValueRows(layer, 0, layer_at(layer).length)));
  }
}

void SimpleKvCache::LoadState(StateReader* reader) {
  reader->ExpectHeader(HeaderOf(geometry_));
  const std::vector<int32_t> lengths = reader->ReadLengths(geometry_);  // [num_layers]
  const int64_t row_bytes = 2 * RowBytes(RowType::kF32, geometry_.kv_stride());
  int64_t bytes = 0;
  for (int32_t length : lengths) bytes += length * row_bytes;
  reader->ExpectRemaining(bytes);  // from here on nothing can fail
  Clear();
  for (int32_t layer = 0; layer < geometry_.num_layers; ++layer) {
    Layer& state = layer_at(layer);
    state = {.length = lengths[static_cast<size_t>(layer)], .reservation = std::nullopt};
    reader->ReadBytes(std::as_writable_bytes(KeyRows(layer, 0, state.length)));
    reader->ReadBytes(std::as_writable_bytes(ValueRows(layer, 0, state.length)));
  }
}

std::span<float> SimpleKvCache::KeyRows(int32_t layer, int32_t first, int32_t count) {
  return keys_.span().subspan(static_cast<size_t>(layout_.Offset(layer, first)),
                              static_cast<size_t>(count * layout_.row_stride));
}

std::span<float> SimpleKvCache::ValueRows(int32_t layer, int32_t first, int32_t count) {
  return values_.span().subspan(static_cast<size_t>(layout_.Offset(layer, first)),
                                static_cast<size_t>(count * layout_.row_stride));
}

std::span<const float> SimpleKvCache::KeyRows(int32_t layer, int32_t first, int32_t count) const {
  return keys_.span().subspan(static_cast<size_t>(layout_.Offset(layer, first)),
                              static_cast<size_t>(count * layout_.row_stride));
}

std::span<const float> SimpleKvCache::ValueRows(int32_t layer, int32_t first, int32_t count) const {
  return values_.span().subspan(static_cast<size_t>(layout_.Offset(layer, first)),
                                static_cast<size_t>(count * layout_.row_stride));
}

void SimpleKvCache::ZeroGap(int32_t layer, int32_t end) {
  const int32_t length = layer_at(layer).length;
  if (end <= length) return;
  std::ranges::fill(KeyRows(layer, length, end - length), 0.0f);
  std::ranges::fill(ValueRows(layer, length, end - length), 0.0f);
}

}  // namespace lockstep
