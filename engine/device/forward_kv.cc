// What a step on a device does with the caches: reserve, store, read.
#include <fmt/format.h>

#include "engine/device/forward.h"
#include "engine/model/step_rows.h"
#include "engine/transformer.h"

namespace lockstep::device {

void DeviceForward::StoreRows(int32_t layer, bool eager) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    if (!eager) {
      StoreInPlace(layer, piece, static_cast<int64_t>(i));
      continue;
    }
    piece.kv = piece.in.cache->device_kv(layer);
    piece.slot = piece.kv->TryReserveDeviceSlot(layer, piece.in.positions, *stream_);
    if (piece.slot) {
      CheckSlot(layer, piece);
      UploadExactFirst(layer, piece, static_cast<int64_t>(i));
      StoreInPlace(layer, piece, static_cast<int64_t>(i));
      piece.kv->CommitDeviceSlot(layer, piece.in.positions, *stream_);
    } else {
      StoreByUpdate(layer, piece);
    }
  }
}

// A kernel writes as many rows as it is told to: a slot that has no room for them must not be
// written.
void DeviceForward::CheckSlot(int32_t layer, const Piece& piece) const {
  const DeviceKvSlot& slot = *piece.slot;
  const int64_t stride = config_.kv_dim();
  const int64_t end = int64_t{slot.first} + slot.count;
  const bool fits = slot.count == piece.count && slot.first == piece.in.positions.front() &&
                    slot.keys.size >= RowBytes(slot.key_type, stride) * end &&
                    slot.values.size >= RowBytes(slot.value_type, stride) * end;
  const bool exact_fits =
      slot.exact_keys.size == 0 ||
      (slot.exact_first >= 0 &&
       slot.exact_keys.size >= (int64_t{slot.exact_first} + slot.count) * stride &&
       slot.exact_values.size == slot.exact_keys.size);
  if (fits && exact_fits) return;
  throw BrokenCache(layer,
                    fmt::format("the device slot holds {} rows from position {}, the step "
                                "has {} from {}",
                                slot.count, slot.first, piece.count, piece.in.positions.front()));
}

void DeviceForward::UploadExactFirst(int32_t layer, const Piece& piece, int64_t index) {
  if (piece.slot->exact_keys.size == 0) return;
  const int64_t at = int64_t{layer} * rows_room_ + index;
  host_exact_first_[static_cast<size_t>(at)] = piece.slot->exact_first;
  stream_->Upload(&host_exact_first_[static_cast<size_t>(at)], exact_first_.address(at), 4);
}

Global<const int32_t> DeviceForward::ExactFirst(int32_t layer, const Piece& piece,
                                                int64_t index) const {
  if (piece.slot->exact_keys.size == 0) return {};
  return exact_first_.part(int64_t{layer} * rows_room_ + index, 1);
}

void DeviceForward::StoreInPlace(int32_t layer, const Piece& piece, int64_t index) {
  const DeviceLayer& w = weights_of(layer);
  const int64_t width = config_.kv_dim();
  StoreArgs args = {.slot = *piece.slot,
                    .x = key_.part(piece.first * width, piece.count * width),
                    .positions = positions_.part(piece.first, piece.count),
                    .exact_first = ExactFirst(layer, piece, index),
                    .heads = config_.num_kv_heads,
                    .rows = {}};
  if (piece.in.trace != nullptr) args.rows = key_rows_.part(piece.first * width, args.x.size);
  StoreKeys(*stream_, FinishOf(layer, w.k_norm), args);
  TracePiece(layer, Stage::kKeyRope, piece, key_rows_, width);
  args.x = value_.part(piece.first * width, piece.count * width);
  StoreValues(*stream_, config_.head_dim, args);
}

void DeviceForward::StoreByUpdate(int32_t layer, const Piece& piece) {
  const DeviceLayer& w = weights_of(layer);
  const int64_t width = config_.kv_dim();
  const Global<float> keys = key_.part(piece.first * width, piece.count * width);
  FinishQuery(*stream_, FinishOf(layer, w.k_norm), positions_.part(piece.first, piece.count),
              piece.count, config_.num_kv_heads, keys);
  TracePiece(layer, Stage::kKeyRope, piece, key_, width);
  piece.kv->UpdateOnDevice(layer, piece.in.positions, keys,
                           value_.part(piece.first * width, piece.count * width), *stream_);
}

void DeviceForward::Attend(int32_t layer, bool eager) {
  const int64_t width = config_.q_dim();
  const bool quantize = weights_of(layer).wo.quantized();
  shape_.window = config_.window_of(layer);
  if (eager) TraceCacheRows(layer);
  for (Piece& piece : pieces_) {
    if (eager) {
      piece.view = piece.kv->ViewOnDevice(layer, piece.in.positions, *stream_);
      CheckView(layer, piece);
    }
    Attention(*stream_,
              {.shape = shape_,
               .view = piece.view,
               .queries = piece.count,
               .positions = positions_.part(piece.first, piece.count),
               .positions_max = positions_max_,
               .q = query_.part(piece.first * width, piece.count * width),
               .out = attention_.part(piece.first * width, piece.count * width),
               .blocks = quantize ? blocks_.part(QuantizedBytes(piece.first, config_.q_dim()),
                                                 QuantizedBytes(piece.count, config_.q_dim()))
                                  : Global<uint8_t>{},
               .scratch = scratch_.all()});
  }
  Trace(layer, Stage::kAttention, attention_, config_.q_dim());
}

void DeviceForward::CheckView(int32_t layer, const Piece& piece) const {
  const int32_t last = piece.in.positions.back();
  const int64_t stride = config_.kv_dim();
  const DeviceKvView& view = piece.view;
  if (view.length > last && view.keys.size >= RowBytes(view.key_type, stride) * (last + 1) &&
      view.values.size >= RowBytes(view.value_type, stride) * (last + 1)) {
    return;
  }
  throw BrokenCache(
      layer, fmt::format("it shows {} rows after the write of position {}", view.length, last));
}

void DeviceForward::TraceCacheRows(int32_t layer) {
  for (const Piece& piece : pieces_) {
    if (piece.in.trace == nullptr) continue;
    KvView view;
    piece.in.cache->View(layer, &view);
    const int64_t stride = config_.kv_dim();
    const KvRows rows = RowsOfStep(view, piece.in.positions, stride, layer);
    piece.in.trace->OnStage({layer, Stage::kCacheKey, piece.in.positions, rows.keys, stride});
    piece.in.trace->OnStage({layer, Stage::kCacheValue, piece.in.positions, rows.values, stride});
  }
}

}  // namespace lockstep::device
