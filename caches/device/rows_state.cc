// What a cache on a device keeps, as digests and cache files see it: as caches/quantized/state.cc.
#include <vector>

#include "caches/cache_file.h"
#include "caches/device/rows_cache.h"

namespace lockstep {
namespace {

// In increasing order.
std::vector<int32_t> HeldPositions(const DeviceLayer& layer) {
  std::vector<int32_t> held;
  for (int32_t p = 0; p < layer.length(); ++p) {
    if (layer.HeldRow(p) >= 0) held.push_back(p);
  }
  return held;
}

}  // namespace

Digest DeviceRowsCache::StorageDigest() const {
  DigestBuilder builder;
  const KvGeometry& g = options_.geometry;
  for (int32_t size : {g.num_layers, g.num_kv_heads, g.head_dim}) {
    builder.AddU32(static_cast<uint32_t>(size));
  }
  for (int32_t layer = 0; layer < g.num_layers; ++layer) {
    const DeviceLayer& rows = Fresh(layer);
    builder.AddU32(static_cast<uint32_t>(rows.length()));
    builder.AddBytes(rows.Keys());
    builder.AddBytes(rows.Values());
  }
  return builder.Finish();
}

void DeviceRowsCache::SaveState(StateWriter* writer) const {
  std::vector<int32_t> lengths;  // [num_layers]
  for (const DeviceLayer& layer : layers_) lengths.push_back(layer.length());
  writer->WriteHeader(StateHeaderOf(kind_, options_));
  writer->WriteLengths(lengths);
  for (const DeviceLayer& layer : layers_) {
    const std::vector<int32_t> held = HeldPositions(layer);
    writer->WriteU32(static_cast<uint32_t>(held.size()));
    writer->WriteBytes(std::as_bytes(std::span(held)));
  }
  for (int32_t layer = 0; layer < options_.geometry.num_layers; ++layer) {
    const DeviceLayer& rows = Fresh(layer);
    writer->WriteBytes(rows.Keys());
    writer->WriteBytes(rows.Values());
    for (int32_t position : HeldPositions(rows)) {
      writer->WriteBytes(rows.ExactKeys(rows.HeldRow(position)));
      writer->WriteBytes(rows.ExactValues(rows.HeldRow(position)));
    }
  }
}

void DeviceRowsCache::LoadRows(int32_t layer, int32_t length, StateReader* reader) {
  const DeviceLayer::RestoredRow rows = layer_at(layer).Restore(length);
  reader->ReadBytes(rows.key);
  reader->ReadBytes(rows.value);
  layer_at(layer).Upload(*stream_);
  stream_->Synchronize();
}

void DeviceRowsCache::LoadState(StateReader* reader) {
  const KvGeometry& g = options_.geometry;
  reader->ExpectHeader(StateHeaderOf(kind_, options_));
  const std::vector<int32_t> lengths = reader->ReadLengths(g);  // [num_layers]
  std::vector<std::vector<int32_t>> held;                       // [num_layers], positions
  const int64_t row_bytes =
      RowBytes(options_.key_type, g.kv_stride()) + RowBytes(options_.value_type, g.kv_stride());
  int64_t bytes = 0;
  for (int32_t length : lengths) {
    held.push_back(ReadHeldPositions(options_, length, reader));
    bytes += length * row_bytes +
             std::ssize(held.back()) * 2 * RowBytes(options_.window_type, g.kv_stride());
  }
  reader->ExpectRemaining(bytes);  // from here on nothing can fail
  Clear();
  for (int32_t layer = 0; layer < g.num_layers; ++layer) {
    DeviceLayer& state = layer_at(layer);
    const DeviceLayer::RestoredRow rows = state.Restore(lengths[static_cast<size_t>(layer)]);
    reader->ReadBytes(rows.key);
    reader->ReadBytes(rows.value);
    for (int32_t position : held[static_cast<size_t>(layer)]) {
      const DeviceLayer::RestoredRow row = state.RestoreHeld(position);
      reader->ReadBytes(row.key);
      reader->ReadBytes(row.value);
    }
    state.Upload(*stream_);
  }
  stream_->Synchronize();
}

}  // namespace lockstep
