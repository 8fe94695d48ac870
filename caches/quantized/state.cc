// What a quantized cache keeps, as digests and cache files see it.
#include <fmt/format.h>

#include <algorithm>

#include "caches/cache_file.h"
#include "caches/quantized_kv_cache.h"

namespace lockstep {

StateHeader StateHeaderOf(std::string_view kind, const QuantizedKvOptions& options) {
  return {.kind = kind,
          .geometry = options.geometry,
          .key_type = options.key_type,
          .value_type = options.value_type,
          .window = options.window,
          .window_type = options.window_type};
}

std::vector<int32_t> ReadHeldPositions(const QuantizedKvOptions& options, int32_t length,
                                       StateReader* reader) {
  constexpr std::string_view kField = "held positions";
  const uint32_t count = reader->ReadU32(kField);
  if (count > static_cast<uint32_t>(std::min(options.window, length))) {
    reader->Fail(kField,
                 fmt::format("{} rows held of {} in a window of {}", count, length, options.window),
                 std::string(kDamagedRemedy));
  }
  const int32_t slots = std::min(options.window, options.geometry.max_length);
  std::vector<int32_t> held;
  std::vector<bool> taken(static_cast<size_t>(slots));
  int32_t next = 0;  // the least position that may follow
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t position = reader->ReadU32(kField);
    if (position < static_cast<uint32_t>(next) || position >= static_cast<uint32_t>(length) ||
        taken[position % static_cast<uint32_t>(slots)]) {
      reader->Fail(kField, fmt::format("position {} cannot be held there", position),
                   std::string(kDamagedRemedy));
    }
    taken[position % static_cast<uint32_t>(slots)] = true;
    held.push_back(static_cast<int32_t>(position));
    next = held.back() + 1;
  }
  return held;
}

std::vector<int32_t> QuantizedKvCache::HeldPositions(int32_t layer) const {
  std::vector<int32_t> held;
  if (windows_.empty()) return held;
  const ExactWindow& window = window_at(layer);
  for (int32_t p = 0; p < length_at(layer); ++p) {
    if (window.Find(p, window.LastStepRow()) >= 0) held.push_back(p);
  }
  return held;
}

Digest QuantizedKvCache::StorageDigest() const {
  DigestBuilder builder;
  const KvGeometry& g = options_.geometry;
  for (int32_t size : {g.num_layers, g.num_kv_heads, g.head_dim}) {
    builder.AddU32(static_cast<uint32_t>(size));
  }
  for (int32_t layer = 0; layer < g.num_layers; ++layer) {
    builder.AddU32(static_cast<uint32_t>(length_at(layer)));
    builder.AddBytes(keys_.Rows(layer, 0, length_at(layer)));
    builder.AddBytes(values_.Rows(layer, 0, length_at(layer)));
  }
  return builder.Finish();
}

// Content: for each layer the number of held positions and these in increasing order, as u32; then
// for each layer its encoded K rows, encoded V rows, and for each held position its exact K row and
// V row.
void QuantizedKvCache::SaveState(StateWriter* writer) const {
  const int32_t num_layers = options_.geometry.num_layers;
  writer->WriteHeader(StateHeaderOf("quantized", options_));
  writer->WriteLengths(lengths_);
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    const std::vector<int32_t> held = HeldPositions(layer);
    writer->WriteU32(static_cast<uint32_t>(held.size()));
    writer->WriteBytes(std::as_bytes(std::span(held)));
  }
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    writer->WriteBytes(keys_.Rows(layer, 0, length_at(layer)));
    writer->WriteBytes(values_.Rows(layer, 0, length_at(layer)));
    for (int32_t position : HeldPositions(layer)) {
      const ExactWindow& window = window_at(layer);
      const int64_t row = window.Find(position, window.LastStepRow());
      writer->WriteBytes(window.Keys(row));
      writer->WriteBytes(window.Values(row));
    }
  }
}

void QuantizedKvCache::LoadRows(int32_t layer, int32_t length, StateReader* reader) {
  length_at(layer) = length;
  reader->ReadBytes(keys_.Rows(layer, 0, length));
  reader->ReadBytes(values_.Rows(layer, 0, length));
}

void QuantizedKvCache::LoadState(StateReader* reader) {
  const KvGeometry& g = options_.geometry;
  reader->ExpectHeader(StateHeaderOf("quantized", options_));
  const std::vector<int32_t> lengths = reader->ReadLengths(g);  // [num_layers]
  std::vector<std::vector<int32_t>> held;                       // [num_layers], positions
  int64_t bytes = 0;
  for (int32_t length : lengths) {
    held.push_back(ReadHeldPositions(options_, length, reader));
    bytes += length * (keys_.layout.row_stride + values_.layout.row_stride) +
             static_cast<int64_t>(held.back().size()) * 2 *
                 RowBytes(options_.window_type, g.kv_stride());
  }
  reader->ExpectRemaining(bytes);  // from here on nothing can fail
  Clear();
  for (int32_t layer = 0; layer < g.num_layers; ++layer) {
    LoadRows(layer, lengths[static_cast<size_t>(layer)], reader);
    for (int32_t position : held[static_cast<size_t>(layer)]) {
      ExactWindow& window = windows_[static_cast<size_t>(layer)];
      const int64_t row = window.Hold(position);
      reader->ReadBytes(window.MutableKeys(row));
      reader->ReadBytes(window.MutableValues(row));
    }
  }
}

}  // namespace lockstep
