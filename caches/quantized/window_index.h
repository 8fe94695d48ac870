// WindowIndex: which positions of one layer are held exactly, and in which row of some memory; the
// memory is somebody else's (ExactWindow on the host, DeviceRows on a device).
//
// In words of the contract it is a ring of `slots` rows: writing position p puts its row into slot
// p mod slots, and whatever position was there is no longer held. Each query of a step must read
// the ring as it stood right after the query's own row was written, though the step's rows arrive
// all at once. So the rows of the last write are kept beside the ring, as *staged* rows, and settle
// into it only when the next write or rollback comes. Until then the ring can be looked at as it
// stood after any of them:
//
//   at `step_row` = r, slot s holds the last staged row q <= r whose position falls into s, or what
//   the settled ring has there when no such row exists.
//
// (A step that writes one position twice shows the first of its rows to queries in between. The
// engine never makes such a step [F2]; it is what as many updates of one row would have shown.)
//
// Rows of the memory: the ring, [0, slots), then `areas` times max_step_rows rows for staging.
#ifndef LOCKSTEP_CACHES_QUANTIZED_WINDOW_INDEX_H_
#define LOCKSTEP_CACHES_QUANTIZED_WINDOW_INDEX_H_

#include <cstdint>
#include <span>
#include <vector>

#include "caches/kv_checks.h"

namespace lockstep {

// Nothing allocates after construction.
class WindowIndex {
 public:
  // REQUIRES: slots > 0, max_step_rows > 0, areas > 0.
  WindowIndex(int32_t slots, int32_t max_step_rows, int32_t areas = 1);

  int32_t slots() const { return slots_; }
  int64_t rows() const { return slots_ + int64_t{areas_} * max_step_rows_; }  // of the memory
  int32_t staged() const { return static_cast<int32_t>(staged_.size()); }
  // Row of the first staged row; the others follow it.
  int64_t first_staged() const { return FirstOf(area_); }
  // The same of the area that the next step is staged in.
  int64_t next_first_staged() const { return FirstOf(NextArea()); }

  // What is staged settles: move(from, slot) for each row that has to be copied there.
  template <typename Move>
  void Settle(Move&& move) {
    for (int32_t row = 0; row < staged(); ++row) {
      const int32_t position = StagedAt(row).position;
      const size_t slot = SlotOf(position);
      if (latest_[slot] != row) continue;  // a later row of the step took the slot
      held_[slot] = position;
      latest_[slot] = kEmpty;
      move(first_staged() + row, static_cast<int64_t>(slot));
    }
    staged_.clear();
  }

  // Stages rows in the next area, in the order of writing: the i-th lies in row first_staged() + i.
  // Positions may repeat and decrease. REQUIRES: nothing is staged; at most max_step_rows of them,
  // none negative.
  void Stage(std::span<const int32_t> positions);
  void StageRun(const PositionRun& run);

  // Lets go of every position >= length: drop(slot) for each. REQUIRES: nothing is staged.
  template <typename Drop>
  void DropFrom(int32_t length, Drop&& drop) {
    CheckSettled();
    for (size_t slot = 0; slot < held_.size(); ++slot) {
      if (held_[slot] < length) continue;
      held_[slot] = kEmpty;
      drop(static_cast<int64_t>(slot));
    }
  }

  // The staged row that last wrote `position`; when none did, the last one of all, which is the
  // ring as it stands now. The result is a `step_row` below.
  int32_t StepRowOf(int32_t position) const;
  int32_t LastStepRow() const { return staged() - 1; }

  // Row of `position` as it stood at `step_row`, or -1 when it was not held then.
  int64_t Find(int32_t position, int32_t step_row) const;

  // The same as the query at `query` will find it when rows of `run` were staged, in which it is.
  int64_t FindInNext(int32_t position, const PositionRun& run, int32_t query) const;

  // Restoring: makes `position` held and returns its row. REQUIRES: nothing is staged.
  int64_t Hold(int32_t position);

  // visit(row) for each row that holds something: slots that are taken, then staged rows.
  template <typename Visit>
  void ForEachRow(Visit&& visit) const {
    for (size_t slot = 0; slot < held_.size(); ++slot) {
      if (held_[slot] != kEmpty) visit(static_cast<int64_t>(slot));
    }
    for (int32_t row = 0; row < staged(); ++row) visit(first_staged() + row);
  }

  // The same rows, staged ones as such, in the same rows of the memory. REQUIRES: both have the
  // same shape.
  void CopyFrom(const WindowIndex& other);

 private:
  static constexpr int32_t kEmpty = -1;

  struct StagedRow {
    int32_t position;
    int32_t earlier;  // the staged row before it in the same slot, or kEmpty
  };

  int32_t NextArea() const { return (area_ + 1) % areas_; }
  int64_t FirstOf(int32_t area) const { return slots_ + int64_t{area} * max_step_rows_; }
  size_t SlotOf(int32_t position) const { return static_cast<size_t>(position % slots_); }
  const StagedRow& StagedAt(int32_t row) const { return staged_[static_cast<size_t>(row)]; }
  void CheckSettled() const;
  void BeginStage(int64_t rows);
  void StageRow(int32_t position);

  int32_t slots_;
  int32_t max_step_rows_;
  int32_t areas_;
  int32_t area_ = 0;               // that the staged rows are in
  std::vector<int32_t> held_;      // [slots] positions in the settled ring, or kEmpty
  std::vector<int32_t> latest_;    // [slots] last staged row in the slot, or kEmpty
  std::vector<StagedRow> staged_;  // in order of writing; capacity max_step_rows
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_QUANTIZED_WINDOW_INDEX_H_
