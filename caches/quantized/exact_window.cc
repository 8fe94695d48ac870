#include "caches/quantized/exact_window.h"

#include <algorithm>

#include "caches/check.h"

namespace lockstep {

ExactWindow::ExactWindow(int32_t slots, int32_t max_step_rows, int64_t kv_stride)
    : slots_(slots),
      max_step_rows_(max_step_rows),
      kv_stride_(kv_stride),
      keys_((int64_t{slots} + max_step_rows) * kv_stride),
      values_((int64_t{slots} + max_step_rows) * kv_stride),
      held_(static_cast<size_t>(slots), kEmpty),
      latest_(static_cast<size_t>(slots), kEmpty) {
  staged_.reserve(static_cast<size_t>(max_step_rows));
}

void ExactWindow::Stage(std::span<const int32_t> positions, std::span<const float> keys,
                        std::span<const float> values) {
  LS_CHECK(positions.size() <= static_cast<size_t>(max_step_rows_), "{} rows staged, room for {}",
           positions.size(), max_step_rows_);
  Settle();
  for (int32_t position : positions) {
    int32_t& latest = latest_[SlotOf(position)];
    staged_.push_back({.position = position, .earlier = latest});
    latest = LastStepRow();
  }
  const auto first_staged = static_cast<size_t>(slots_ * kv_stride_);
  std::ranges::copy(keys, keys_.span().subspan(first_staged).begin());
  std::ranges::copy(values, values_.span().subspan(first_staged).begin());
}

void ExactWindow::Settle() {
  for (int32_t row = 0; row <= LastStepRow(); ++row) {
    const int32_t position = StagedAt(row).position;
    const size_t slot = SlotOf(position);
    if (latest_[slot] != row) continue;  // a later row of the step took the slot
    held_[slot] = position;
    latest_[slot] = kEmpty;
    std::ranges::copy(Keys(slots_ + row), MutableKeys(static_cast<int64_t>(slot)).begin());
    std::ranges::copy(Values(slots_ + row), MutableValues(static_cast<int64_t>(slot)).begin());
  }
  const auto first = static_cast<size_t>(slots_ * kv_stride_);
  const size_t elements = staged_.size() * static_cast<size_t>(kv_stride_);
  keys_.Poison(keys_.span().subspan(first, elements));
  values_.Poison(values_.span().subspan(first, elements));
  staged_.clear();
}

void ExactWindow::DropFrom(int32_t length) {
  Settle();
  for (size_t slot = 0; slot < held_.size(); ++slot) {
    if (held_[slot] < length) continue;
    held_[slot] = kEmpty;
    keys_.Poison(MutableKeys(static_cast<int64_t>(slot)));
    values_.Poison(MutableValues(static_cast<int64_t>(slot)));
  }
}

int32_t ExactWindow::StepRowOf(int32_t position) const {
  int32_t row = latest_[SlotOf(position)];
  while (row != kEmpty && StagedAt(row).position != position) row = StagedAt(row).earlier;
  return row != kEmpty ? row : LastStepRow();
}

int64_t ExactWindow::Find(int32_t position, int32_t step_row) const {
  const size_t slot = SlotOf(position);
  int32_t row = latest_[slot];
  while (row > step_row) row = StagedAt(row).earlier;
  if (row != kEmpty) return StagedAt(row).position == position ? int64_t{slots_} + row : kEmpty;
  return held_[slot] == position ? static_cast<int64_t>(slot) : kEmpty;
}

std::span<const float> ExactWindow::Keys(int64_t row) const {
  return keys_.span().subspan(static_cast<size_t>(row * kv_stride_),
                              static_cast<size_t>(kv_stride_));
}

std::span<const float> ExactWindow::Values(int64_t row) const {
  return values_.span().subspan(static_cast<size_t>(row * kv_stride_),
                                static_cast<size_t>(kv_stride_));
}

std::span<float> ExactWindow::MutableKeys(int64_t row) {
  return keys_.span().subspan(static_cast<size_t>(row * kv_stride_),
                              static_cast<size_t>(kv_stride_));
}

std::span<float> ExactWindow::MutableValues(int64_t row) {
  return values_.span().subspan(static_cast<size_t>(row * kv_stride_),
                                static_cast<size_t>(kv_stride_));
}

void ExactWindow::CopyFrom(const ExactWindow& other) {
  LS_CHECK(slots_ == other.slots_ && max_step_rows_ == other.max_step_rows_ &&
               kv_stride_ == other.kv_stride_,
           "windows of different shapes");
  held_ = other.held_;
  latest_ = other.latest_;
  staged_.assign(other.staged_.begin(), other.staged_.end());
  const auto copy_row = [&](int64_t row) {
    std::ranges::copy(other.Keys(row), MutableKeys(row).begin());
    std::ranges::copy(other.Values(row), MutableValues(row).begin());
  };
  for (int32_t slot = 0; slot < slots_; ++slot) {
    if (held_[static_cast<size_t>(slot)] != kEmpty) copy_row(slot);
  }
  for (int32_t row = 0; row <= LastStepRow(); ++row) copy_row(int64_t{slots_} + row);
}

int64_t ExactWindow::Hold(int32_t position) {
  LS_CHECK(staged_.empty(), "{} rows are staged", staged_.size());
  const size_t slot = SlotOf(position);
  held_[slot] = position;
  return static_cast<int64_t>(slot);
}

}  // namespace lockstep
