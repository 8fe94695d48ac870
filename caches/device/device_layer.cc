#include "caches/device/device_layer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "caches/check.h"

namespace lockstep {

using device::kRowsOfLaunch;
using device::LayerHalf;

DeviceLayer::DeviceLayer(Device& device, const QuantizedKvOptions& options)
    : options_(options),
      keys_(device, options.geometry.max_length,
            RowBytes(options.key_type, options.geometry.kv_stride())),
      values_(device, options.geometry.max_length,
              RowBytes(options.value_type, options.geometry.kv_stride())),
      stale_(options.geometry.max_length),
      stale_exact_(0) {
  if (options.window == 0) return;
  // A ring of max_length slots already holds every position.
  const int32_t slots = std::min(options.window, options.geometry.max_length);
  // Two areas: rows of an open reservation may not touch those that are staged.
  window_.emplace(slots, options.max_step_rows, 2);
  stale_exact_ = StaleRows(window_->rows());
  const int64_t row_bytes = RowBytes(options.window_type, options.geometry.kv_stride());
  exact_.reserve(2);
  for (int half = 0; half < 2; ++half) exact_.emplace_back(device, window_->rows(), row_bytes);
  const int64_t entries = int64_t{options.max_step_rows} * slots;
  exact_rows_ = DeviceBuffer<int32_t>(device, entries);
  exact_rows_on_host_.resize(static_cast<size_t>(entries));
  uploaded_ = device.NewEvent();
}

std::array<LayerHalf, 2> DeviceLayer::Halves() const {
  std::array<LayerHalf, 2> halves = {LayerHalf{options_.key_type, keys_.on_device(), {}},
                                     LayerHalf{options_.value_type, values_.on_device(), {}}};
  for (size_t half = 0; half < exact_.size(); ++half) {
    halves[half].exact = exact_[half].halves_on_device();
  }
  return halves;
}

DeviceKvSlot DeviceLayer::Rows() const {
  const auto halves = Halves();
  return {.key_type = options_.key_type,
          .value_type = options_.value_type,
          .keys = halves[0].rows,
          .values = halves[1].rows,
          .exact_keys = halves[0].exact,
          .exact_values = halves[1].exact};
}

// ---- Writing ----------------------------------------------------------------------------------

void DeviceLayer::Settle(DeviceStream& stream) {
  device::MoveRowsKernel::Args args = {
      .kv_stride = options_.geometry.kv_stride(),
      .exact = {exact_[0].halves_on_device(), exact_[1].halves_on_device()},
      .from = {},
      .to = {}};
  int32_t count = 0;
  const auto move_all = [&] {
    Launch<device::MoveRowsKernel>(stream, {.x = count, .y = 2}, args);
    count = 0;
  };
  const int64_t first = window_->first_staged();
  const int64_t rows = window_->staged();
  window_->Settle([&](int64_t row, int64_t slot) {
    args.from[count] = static_cast<int32_t>(row);
    args.to[count] = static_cast<int32_t>(slot);
    stale_exact_.Mark(slot, 1);
    if (++count == kRowsOfLaunch) move_all();
  });
  move_all();
  stale_exact_.Forget(first, rows);
  for (MirroredRows& half : exact_) half.Poison(first, rows, stream);
}

void DeviceLayer::ZeroGap(int32_t end, DeviceStream& stream) {
  if (end <= length_) return;
  const auto halves = Halves();
  Launch<device::ZeroRowsKernel>(stream, {.x = end - length_, .y = 2},
                                 {.kv_stride = options_.geometry.kv_stride(),
                                  .halves = {halves[0], halves[1]},
                                  .first = length_});
}

void DeviceLayer::BeginUpdate(std::span<const int32_t> positions, const Ends& ends,
                              DeviceStream& stream) {
  CancelReservation();
  ZeroGap(ends.gap_end, stream);
  stale_.Mark(length_, ends.gap_end - length_);
  for (int32_t position : positions) stale_.Mark(position, 1);
  length_ = std::max(length_, ends.end);
  if (!window_) return;
  Settle(stream);
  window_->Stage(positions);
  stale_exact_.Mark(window_->first_staged(), std::ssize(positions));
}

void DeviceLayer::Store(std::span<const int32_t> positions, size_t first, const FloatRows& rows,
                        DeviceStream& stream) {
  const auto halves = Halves();
  device::StoreRowsKernel::Args args = {
      .kv_stride = options_.geometry.kv_stride(),
      .halves = {halves[0], halves[1]},
      .x = {rows.keys, rows.values},
      .exact_first = window_ ? window_->first_staged() + static_cast<int64_t>(first) : 0,
      .positions = {}};
  LS_CHECK(positions.size() <= size_t{kRowsOfLaunch}, "{} rows of a launch", positions.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    // Rows of a launch are written in any order: of a duplicate the last one alone [U2].
    const auto later = positions.subspan(i + 1);
    const bool again = std::ranges::find(later, positions[i]) != later.end();
    args.positions[i] = again ? -1 : positions[i];
  }
  Launch<device::StoreRowsKernel>(stream, {.x = static_cast<int32_t>(positions.size()), .y = 2},
                                  args);
}

DeviceKvSlot DeviceLayer::Reserve(const PositionRun& run, DeviceStream& stream) {
  CancelReservation();
  ZeroGap(run.first, stream);  // queries of the step read it before the commit
  reservation_ = run;
  DeviceKvSlot slot = Rows();
  slot.first = run.first;
  slot.count = run.count;
  slot.exact_first = window_ ? static_cast<int32_t>(window_->next_first_staged()) : 0;
  return slot;
}

void DeviceLayer::CancelReservation() {
  if (!reservation_) return;
  // Rows below the length may have been overwritten: both copies show the same all the same [R5].
  stale_.Mark(reservation_->first, std::min(reservation_->end(), length_) - reservation_->first);
  reservation_.reset();
}

void DeviceLayer::Publish(DeviceStream& stream) {
  const PositionRun run = *std::exchange(reservation_, std::nullopt);
  const int32_t first = std::min(run.first, length_);  // of what is new, the gap included
  stale_.Mark(first, run.end() - first);
  length_ = std::max(length_, run.end());
  if (!window_) return;
  Settle(stream);
  window_->StageRun(run);
  stale_exact_.Mark(window_->first_staged(), run.count);
}

void DeviceLayer::Rollback(int32_t length, DeviceStream& stream) {
  CancelReservation();
  if (window_) {
    Settle(stream);
    window_->DropFrom(length, [&](int64_t slot) {
      stale_exact_.Forget(slot, 1);
      for (MirroredRows& half : exact_) half.Poison(slot, 1, stream);
    });
  }
  const int32_t gone = length_ - length;
  if (gone <= 0) return;
  stale_.Forget(length, gone);
  keys_.Poison(length, gone, stream);
  values_.Poison(length, gone, stream);
  length_ = length;
}

void DeviceLayer::CopyFrom(const DeviceLayer& other, DeviceStream& stream) {
  length_ = other.length_;
  keys_.CopyFrom(other.keys_, 0, length_, stream);
  values_.CopyFrom(other.values_, 0, length_, stream);
  stale_.Mark(0, length_);
  if (!window_) return;
  window_->CopyFrom(*other.window_);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>(0, window_->slots()),
                                     {window_->first_staged(), window_->staged()}}) {
    for (size_t half = 0; half < exact_.size(); ++half) {
      exact_[half].CopyFrom(other.exact_[half], first, count, stream);
    }
  }
  window_->ForEachRow([&](int64_t row) { stale_exact_.Mark(row, 1); });
}

// ---- Reading ----------------------------------------------------------------------------------

bool DeviceLayer::Refresh(DeviceStream& stream) {
  bool any = false;
  stale_.Refresh([&](int64_t first, int64_t count) {
    keys_.Download(first, count, stream);
    values_.Download(first, count, stream);
    any = true;
  });
  stale_exact_.Refresh([&](int64_t first, int64_t count) {
    for (MirroredRows& half : exact_) half.Download(first, count, stream);
    any = true;
  });
  return any;
}

void DeviceLayer::Show(int32_t position, int32_t step_row, KvView* view) const {
  ShownRows rows = {.length = length_,
                    .kv_stride = options_.geometry.kv_stride(),
                    .key_type = options_.key_type,
                    .value_type = options_.value_type,
                    .keys = Keys().data(),
                    .values = Values().data()};
  if (window_) {
    rows.window = options_.window;
    rows.index = &*window_;
    rows.window_type = options_.window_type;
    rows.exact_keys = ExactKeys(0).data();
    rows.exact_values = ExactValues(0).data();
  }
  ShowRows(rows, position, step_row, view);
}

int64_t DeviceLayer::HeldRow(int32_t position) const {
  return window_ ? window_->Find(position, window_->LastStepRow()) : -1;
}

int64_t DeviceLayer::ExactRowOf(int32_t position, int32_t p) const {
  if (reservation_ && position >= reservation_->first && position < reservation_->end()) {
    return window_->FindInNext(p, *reservation_, position);
  }
  return window_->Find(p, window_->StepRowOf(position));
}

DeviceKvView DeviceLayer::ViewOnDevice(std::span<const int32_t> positions, Device& device,
                                       DeviceStream& stream) {
  const DeviceKvSlot rows = Rows();
  DeviceKvView view = {.length = reservation_ ? std::max(length_, reservation_->end()) : length_,
                       .key_type = rows.key_type,
                       .value_type = rows.value_type,
                       .keys = rows.keys,
                       .values = rows.values,
                       .window = 0,
                       .exact_rows = {},
                       .exact_keys = rows.exact_keys,
                       .exact_values = rows.exact_values};
  const auto reserved = [&](int32_t position) {
    return reservation_ && position >= reservation_->first && position < reservation_->end();
  };
  for (int32_t position : positions) {
    LS_CHECK(position >= 0 && position < view.length, "a query at {} of {}", position, view.length);
    LS_CHECK(reserved(position) == reserved(positions.front()),
             "queries at {} and {}, one of them in the open reservation", positions.front(),
             position);
  }
  if (!window_) return view;
  const int32_t slots = window_->slots();
  const int64_t entries = std::ssize(positions) * slots;
  LS_CHECK(entries <= exact_rows_.size(), "{} queries", positions.size());
  device.Synchronize(*uploaded_);  // what was uploaded from here before
  std::fill_n(exact_rows_on_host_.begin(), entries, -1);
  for (size_t i = 0; i < positions.size(); ++i) {
    const int32_t position = positions[i];
    const auto begin = exact_rows_on_host_.begin() + static_cast<ptrdiff_t>(i) * slots;
    for (int32_t p = std::max(position - slots + 1, 0); p <= position; ++p) {
      begin[p % slots] = static_cast<int32_t>(ExactRowOf(position, p));
    }
  }
  stream.Upload(exact_rows_on_host_.data(), exact_rows_.address(),
                entries * static_cast<int64_t>(sizeof(int32_t)));
  stream.Record(uploaded_.get());
  view.window = slots;
  view.exact_rows = exact_rows_.part(0, entries);
  return view;
}

// ---- Restoring --------------------------------------------------------------------------------

DeviceLayer::RestoredRow DeviceLayer::Restore(int32_t length) {
  length_ = length;
  return {keys_.OnHost(0, length), values_.OnHost(0, length)};
}

DeviceLayer::RestoredRow DeviceLayer::RestoreHeld(int32_t position) {
  const int64_t row = window_->Hold(position);
  return {exact_[0].OnHost(row, 1), exact_[1].OnHost(row, 1)};
}

void DeviceLayer::Upload(DeviceStream& stream) {
  keys_.Upload(0, length_, stream);
  values_.Upload(0, length_, stream);
  if (!window_) return;
  window_->ForEachRow([&](int64_t row) {
    for (MirroredRows& half : exact_) half.Upload(row, 1, stream);
  });
}

}  // namespace lockstep
