#include "caches/quantized/window_index.h"

#include "caches/check.h"

namespace lockstep {

WindowIndex::WindowIndex(int32_t slots, int32_t max_step_rows, int32_t areas)
    : slots_(slots),
      max_step_rows_(max_step_rows),
      areas_(areas),
      held_(static_cast<size_t>(slots), kEmpty),
      latest_(static_cast<size_t>(slots), kEmpty) {
  staged_.reserve(static_cast<size_t>(max_step_rows));
}

void WindowIndex::CheckSettled() const {
  LS_CHECK(staged_.empty(), "{} rows are staged", staged_.size());
}

void WindowIndex::BeginStage(int64_t rows) {
  LS_CHECK(rows <= max_step_rows_, "{} rows staged, room for {}", rows, max_step_rows_);
  CheckSettled();
  area_ = NextArea();
}

void WindowIndex::StageRow(int32_t position) {
  int32_t& latest = latest_[SlotOf(position)];
  staged_.push_back({.position = position, .earlier = latest});
  latest = LastStepRow();
}

void WindowIndex::Stage(std::span<const int32_t> positions) {
  BeginStage(std::ssize(positions));
  for (int32_t position : positions) StageRow(position);
}

void WindowIndex::StageRun(const PositionRun& run) {
  BeginStage(run.count);
  for (int32_t i = 0; i < run.count; ++i) StageRow(run.first + i);
}

int32_t WindowIndex::StepRowOf(int32_t position) const {
  int32_t row = latest_[SlotOf(position)];
  while (row != kEmpty && StagedAt(row).position != position) row = StagedAt(row).earlier;
  return row != kEmpty ? row : LastStepRow();
}

int64_t WindowIndex::Find(int32_t position, int32_t step_row) const {
  const size_t slot = SlotOf(position);
  int32_t row = latest_[slot];
  while (row > step_row) row = StagedAt(row).earlier;
  if (row != kEmpty) return StagedAt(row).position == position ? first_staged() + row : kEmpty;
  return held_[slot] == position ? static_cast<int64_t>(slot) : kEmpty;
}

int64_t WindowIndex::FindInNext(int32_t position, const PositionRun& run, int32_t query) const {
  // The last row of the run, up to the query's, that falls into the same slot.
  const int32_t distance = query % slots_ - position % slots_;
  const int32_t last = query - (distance < 0 ? distance + slots_ : distance);
  if (last < run.first) return Find(position, LastStepRow());
  return last == position ? next_first_staged() + (position - run.first) : kEmpty;
}

int64_t WindowIndex::Hold(int32_t position) {
  CheckSettled();
  const size_t slot = SlotOf(position);
  held_[slot] = position;
  return static_cast<int64_t>(slot);
}

void WindowIndex::CopyFrom(const WindowIndex& other) {
  LS_CHECK(
      slots_ == other.slots_ && max_step_rows_ == other.max_step_rows_ && areas_ == other.areas_,
      "windows of different shapes");
  area_ = other.area_;
  held_ = other.held_;
  latest_ = other.latest_;
  staged_.assign(other.staged_.begin(), other.staged_.end());
}

}  // namespace lockstep
