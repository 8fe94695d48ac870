#include "caches/hybrid_kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "caches/cache_file.h"
#include "caches/kv_checks.h"

namespace lockstep {
namespace {

KvGeometry Layers(KvGeometry geometry, int32_t layers) {
  geometry.num_layers = layers;
  return geometry;
}

// Of every layer, wherever it lies.
QuantizedKvOptions RowsOf(const KvGeometry& geometry) {
  return {.geometry = geometry, .key_type = RowType::kF16, .value_type = RowType::kF16};
}

}  // namespace

HybridKvCache::HybridKvCache(const HybridKvOptions& options)
    : options_(options),
      device_layers_(std::min(options.device_layers, options.geometry.num_layers)) {
  const KvGeometry& g = options_.geometry;
  CheckGeometry(g);
  if (options_.device_layers < 0) {
    throw std::invalid_argument(
        fmt::format("hybrid cache: {} layers on the device", options_.device_layers));
  }
  if (device_layers_ > 0) {
    on_device_ = std::make_unique<CudaKvCache>(Layers(g, device_layers_), options_.device);
  }
  if (device_layers_ < g.num_layers) {
    on_host_ = std::make_unique<QuantizedKvCache>(RowsOf(Layers(g, g.num_layers - device_layers_)));
  }
}

std::string HybridKvCache::name() const { return fmt::format("hybrid/{}", options_.device_layers); }

HybridKvCache::Place HybridKvCache::PlaceOf(int32_t layer) const {
  CheckLayer(options_.geometry, layer);
  if (layer < device_layers_) return {on_device_.get(), layer};
  return {on_host_.get(), layer - device_layers_};
}

int32_t HybridKvCache::length(int32_t layer) const {
  const Place place = PlaceOf(layer);
  return place.cache->length(place.layer);
}

int32_t HybridKvCache::current_length() const {
  return std::max(on_device_ != nullptr ? on_device_->current_length() : 0,
                  on_host_ != nullptr ? on_host_->current_length() : 0);
}

void HybridKvCache::View(int32_t layer, KvView* view) const {
  const Place place = PlaceOf(layer);
  place.cache->View(place.layer, view);
}

void HybridKvCache::Update(int32_t layer, std::span<const int32_t> positions,
                           std::span<const float> keys, std::span<const float> values) {
  const Place place = PlaceOf(layer);
  place.cache->Update(place.layer, positions, keys, values);
}

std::optional<KvSlot> HybridKvCache::TryReserveSlot(int32_t layer,
                                                    std::span<const int32_t> positions) {
  const Place place = PlaceOf(layer);
  return place.cache->TryReserveSlot(place.layer, positions);
}

void HybridKvCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  const Place place = PlaceOf(layer);
  place.cache->CommitSlot(place.layer, positions);
}

DeviceKv* HybridKvCache::device_kv(int32_t layer) {
  const Place place = PlaceOf(layer);
  return place.cache->device_kv(place.layer);
}

// The device's half comes first: it alone can fail.
void HybridKvCache::Rollback(int32_t length) {
  CheckRollback(length, current_length());
  const auto shrink = [length](KvCache* half) {
    if (half != nullptr) half->Rollback(std::min(length, half->current_length()));
  };
  shrink(on_device_.get());
  shrink(on_host_.get());
}

void HybridKvCache::Clear() { Rollback(0); }

// The device's half comes last: its fork cancels its reservations, and nothing may fail after that.
std::unique_ptr<KvCache> HybridKvCache::Fork() {
  auto fork = std::make_unique<HybridKvCache>(options_);
  if (on_host_ != nullptr) {
    fork->on_host_.reset(static_cast<QuantizedKvCache*>(on_host_->Fork().release()));
  }
  if (on_device_ != nullptr) {
    fork->on_device_.reset(static_cast<CudaKvCache*>(on_device_->Fork().release()));
  }
  return fork;
}

Digest HybridKvCache::StorageDigest() const { return DigestOfStoredRows(*this); }

// Content: for each layer its K rows, then its V rows.
void HybridKvCache::SaveState(StateWriter* writer) const {
  std::vector<int32_t> lengths;  // [num_layers]
  for (int32_t layer = 0; layer < options_.geometry.num_layers; ++layer) {
    lengths.push_back(length(layer));
  }
  writer->WriteHeader(StateHeaderOf("hybrid", RowsOf(options_.geometry)));
  writer->WriteLengths(lengths);
  const int64_t row_bytes = RowBytes(RowType::kF16, options_.geometry.kv_stride());
  KvView view;
  for (int32_t layer = 0; layer < options_.geometry.num_layers; ++layer) {
    View(layer, &view);
    for (const KvSegment& segment : view.segments) {
      const auto bytes = static_cast<size_t>(segment.count * row_bytes);
      writer->WriteBytes({segment.keys, bytes});
      writer->WriteBytes({segment.values, bytes});
    }
  }
}

void HybridKvCache::LoadState(StateReader* reader) {
  const KvGeometry& g = options_.geometry;
  reader->ExpectHeader(StateHeaderOf("hybrid", RowsOf(g)));
  const std::vector<int32_t> lengths = reader->ReadLengths(g);  // [num_layers]
  int64_t bytes = 0;
  for (int32_t length : lengths) bytes += length * 2 * RowBytes(RowType::kF16, g.kv_stride());
  reader->ExpectRemaining(bytes);  // from here on nothing can fail
  Clear();
  for (int32_t layer = 0; layer < g.num_layers; ++layer) {
    const int32_t rows = lengths[static_cast<size_t>(layer)];
    if (layer < device_layers_) {
      on_device_->LoadRows(layer, rows, reader);
    } else {
      on_host_->LoadRows(layer - device_layers_, rows, reader);
    }
  }
}

}  // namespace lockstep
