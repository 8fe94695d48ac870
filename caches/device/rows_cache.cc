#include "caches/device/rows_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "caches/memory_watch.h"

namespace lockstep {
namespace {

using device::kRowsOfLaunch;

// Exact rows are counted in 32 bits on the device.
QuantizedKvOptions Checked(std::string_view kind, QuantizedKvOptions options) {
  options.window_type = RowType::kF16;
  options = CheckedOptions(kind, options);
  const int64_t exact_rows = int64_t{std::min(options.window, options.geometry.max_length)} +
                             2 * int64_t{options.max_step_rows};
  if (exact_rows > std::numeric_limits<int32_t>::max()) {
    throw std::invalid_argument(fmt::format(
        "{} cache: a window of {} positions has too many exact rows", kind, options.window));
  }
  return options;
}

// Rows [first, first + count) of floats.
Global<const float> Part(Global<const float> rows, size_t first, size_t count, int64_t kv_stride) {
  return {rows.data + static_cast<int64_t>(first) * kv_stride,
          static_cast<int64_t>(count) * kv_stride};
}

}  // namespace

DeviceRowsCache::DeviceRowsCache(std::string_view kind, const QuantizedKvOptions& options,
                                 std::shared_ptr<Device> device)
    : kind_(kind),
      options_(Checked(kind, options)),
      device_(device != nullptr ? std::move(device) : DefaultDevice()),
      stream_(device_->NewStream()) {
  // Rows of duplicates too: there may be more of them than positions.
  const int64_t elements = kRowsOfLaunch * options_.geometry.kv_stride();
  arriving_keys_ = DeviceBuffer<float>(*device_, elements);
  arriving_values_ = DeviceBuffer<float>(*device_, elements);
  poison_ = AlignedBuffer<std::byte>(1).poison();
  layers_.reserve(static_cast<size_t>(options_.geometry.num_layers));
  for (int32_t layer = 0; layer < options_.geometry.num_layers; ++layer) {
    layers_.emplace_back(*device_, options_);
  }
}

int32_t DeviceRowsCache::max_step_rows() const {
  return options_.window > 0 ? options_.max_step_rows : max_length();
}

int32_t DeviceRowsCache::length(int32_t layer) const {
  CheckLayer(options_.geometry, layer);
  return layer_at(layer).length();
}

int32_t DeviceRowsCache::current_length() const {
  int32_t longest = 0;
  for (const DeviceLayer& layer : layers_) longest = std::max(longest, layer.length());
  return longest;
}

// ---- Waiting ----------------------------------------------------------------------------------

void DeviceRowsCache::WaitForCallers() const {
  if (callers_ != nullptr && *callers_ != nullptr) (*callers_)->Synchronize();
}

void DeviceRowsCache::UseStream(DeviceStream& stream) {
  if (callers_ == stream.self()) return;
  WaitForCallers();
  callers_ = stream.self();
}

const DeviceLayer& DeviceRowsCache::Fresh(int32_t layer) const {
  const std::lock_guard<std::mutex> lock(device_->reading());
  WaitForCallers();
  DeviceLayer& fresh = layers_[static_cast<size_t>(layer)];
  if (fresh.Refresh(*stream_)) stream_->Synchronize();
  return fresh;
}

// ---- Reading ----------------------------------------------------------------------------------

void DeviceRowsCache::View(int32_t layer, KvView* view) const {
  CheckLayer(options_.geometry, layer);
  const DeviceLayer& rows = Fresh(layer);
  rows.Show(rows.length() - 1, rows.LastStepRow(), view);
}

void DeviceRowsCache::ViewForQuery(int32_t layer, int32_t position, KvView* view) const {
  CheckLayer(options_.geometry, layer);
  CheckQuery(position, layer_at(layer).length());
  const DeviceLayer& rows = Fresh(layer);
  rows.Show(position, rows.StepRowOf(position), view);
}

DeviceKv* DeviceRowsCache::device_kv(int32_t layer) {
  CheckLayer(options_.geometry, layer);
  return this;
}

DeviceKvSlot DeviceRowsCache::RowsOnDevice(int32_t layer) const {
  CheckLayer(options_.geometry, layer);
  return layer_at(layer).Rows();
}

DeviceKvView DeviceRowsCache::ViewOnDevice(int32_t layer, std::span<const int32_t> positions,
                                           DeviceStream& stream) {
  CheckLayer(options_.geometry, layer);
  UseStream(stream);
  return layer_at(layer).ViewOnDevice(positions, *device_, stream);
}

// ---- Writing ----------------------------------------------------------------------------------

// rows_of(first, count) says where rows [first, first + count) of the input lie on the device when
// the stream comes there.
template <typename RowsOf>
void DeviceRowsCache::Write(int32_t layer, std::span<const int32_t> positions, int32_t end,
                            DeviceStream& stream, RowsOf&& rows_of) {
  const auto run = AsRun(positions, max_length());
  DeviceLayer& rows = layer_at(layer);
  rows.BeginUpdate(positions, {.gap_end = run ? run->first : end, .end = end}, stream);
  for (size_t first = 0; first < positions.size(); first += kRowsOfLaunch) {
    const size_t count = std::min(positions.size() - first, size_t{kRowsOfLaunch});
    rows.Store(positions.subspan(first, count), first, rows_of(first, count), stream);
  }
}

void DeviceRowsCache::Update(int32_t layer, std::span<const int32_t> positions,
                             std::span<const float> keys, std::span<const float> values) {
  const int32_t end = CheckUpdate(options_.geometry, layer, positions, keys, values);
  if (options_.window > 0) CheckStepRows(positions, max_step_rows());
  if (positions.empty()) return;
  WaitForCallers();
  const int64_t stride = options_.geometry.kv_stride();
  const auto bring = [&](std::span<const float> from, const DeviceBuffer<float>& to, size_t first,
                         size_t count) -> Global<const float> {
    const auto elements = static_cast<int64_t>(count) * stride;
    stream_->Upload(from.data() + static_cast<int64_t>(first) * stride, to.address(),
                    elements * static_cast<int64_t>(sizeof(float)));
    return to.part(0, elements);
  };
  Write(layer, positions, end, *stream_, [&](size_t first, size_t count) -> FloatRows {
    return {bring(keys, arriving_keys_, first, count),
            bring(values, arriving_values_, first, count)};
  });
  if (poison_) {
    for (const DeviceBuffer<float>* buffer : {&arriving_keys_, &arriving_values_}) {
      stream_->Fill(buffer->address(), *poison_,
                    buffer->size() * static_cast<int64_t>(sizeof(float)));
    }
  }
  stream_->Synchronize();
}

void DeviceRowsCache::UpdateOnDevice(int32_t layer, std::span<const int32_t> positions,
                                     Global<const float> keys, Global<const float> values,
                                     DeviceStream& stream) {
  const int32_t end = CheckUpdate(options_.geometry, layer, positions,
                                  static_cast<size_t>(keys.size), static_cast<size_t>(values.size));
  if (options_.window > 0) CheckStepRows(positions, max_step_rows());
  if (positions.empty()) return;
  UseStream(stream);
  const int64_t stride = options_.geometry.kv_stride();
  Write(layer, positions, end, stream, [&](size_t first, size_t count) -> FloatRows {
    return {Part(keys, first, count, stride), Part(values, first, count, stride)};
  });
}

std::optional<KvSlot> DeviceRowsCache::TryReserveSlot(int32_t layer,
                                                      std::span<const int32_t> /*positions*/) {
  CheckLayer(options_.geometry, layer);
  return std::nullopt;
}

void DeviceRowsCache::CommitSlot(int32_t layer, std::span<const int32_t> positions) {
  CheckLayer(options_.geometry, layer);
  DecideCommit(positions, std::nullopt, layer_at(layer).length(), max_length());
}

std::optional<DeviceKvSlot> DeviceRowsCache::TryReserveDeviceSlot(
    int32_t layer, std::span<const int32_t> positions, DeviceStream& stream) {
  CheckLayer(options_.geometry, layer);
  const auto run = AsRun(positions, max_length());
  if (!run || run->count > max_step_rows()) return std::nullopt;
  UseStream(stream);
  return layer_at(layer).Reserve(*run, stream);
}

void DeviceRowsCache::CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                                       DeviceStream& stream) {
  CheckLayer(options_.geometry, layer);
  DeviceLayer& rows = layer_at(layer);
  const CommitAction action =
      DecideCommit(positions, rows.reservation(), rows.length(), max_length());
  if (action == CommitAction::kNothing) return;
  UseStream(stream);
  rows.Publish(stream);
}

// ---- Lifetime of rows -------------------------------------------------------------------------

void DeviceRowsCache::Rollback(int32_t length) {
  CheckRollback(length, current_length());
  WaitForCallers();
  for (DeviceLayer& layer : layers_) layer.Rollback(length, *stream_);
  stream_->Synchronize();
}

void DeviceRowsCache::Clear() { Rollback(0); }

std::unique_ptr<KvCache> DeviceRowsCache::Fork() {
  std::unique_ptr<DeviceRowsCache> fork = MakeEmpty();
  WaitForCallers();
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    layers_[layer].CancelReservation();
    fork->layers_[layer].CopyFrom(layers_[layer], *fork->stream_);
  }
  fork->stream_->Synchronize();
  return fork;
}

}  // namespace lockstep
