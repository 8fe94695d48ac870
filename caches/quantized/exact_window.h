// ExactWindow: the rows of one layer that a quantized cache still holds in full precision.
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
#ifndef LOCKSTEP_CACHES_QUANTIZED_EXACT_WINDOW_H_
#define LOCKSTEP_CACHES_QUANTIZED_EXACT_WINDOW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "caches/aligned_buffer.h"

namespace lockstep {

// Nothing allocates after construction.
class ExactWindow {
 public:
  // REQUIRES: slots > 0, max_step_rows > 0, kv_stride > 0.
  ExactWindow(int32_t slots, int32_t max_step_rows, int64_t kv_stride);

  // Settles what is staged, then stages the rows of a write, in its order. Positions may repeat and
  // decrease. REQUIRES: at most max_step_rows of them, none negative; kv_stride elements for each.
  void Stage(std::span<const int32_t> positions, std::span<const float> keys,
             std::span<const float> values);

  // Settles what is staged, then lets go of every position >= length.
  void DropFrom(int32_t length);

  // The staged row that last wrote `position`; when none did, the last one of all, which is the
  // ring as it stands now. The result is a `step_row` below.
  int32_t StepRowOf(int32_t position) const;
  int32_t LastStepRow() const { return static_cast<int32_t>(staged_.size()) - 1; }

  // Index of the exact row of `position` in keys() and values() as it stood at `step_row`, or -1
  // when it was not held then.
  int64_t Find(int32_t position, int32_t step_row) const;

  std::span<const float> Keys(int64_t row) const;    // [kv_stride]
  std::span<const float> Values(int64_t row) const;  // [kv_stride]

  // The same rows, staged ones as such. REQUIRES: both have the same shape.
  void CopyFrom(const ExactWindow& other);

  // Restoring: makes `position` held and returns its row, to be filled through the mutable spans.
  // REQUIRES: nothing is staged.
  int64_t Hold(int32_t position);
  std::span<float> MutableKeys(int64_t row);
  std::span<float> MutableValues(int64_t row);

 private:
  static constexpr int32_t kEmpty = -1;

  struct StagedRow {
    int32_t position;
    int32_t earlier;  // the staged row before it in the same slot, or kEmpty
  };

  size_t SlotOf(int32_t position) const { return static_cast<size_t>(position % slots_); }
  const StagedRow& StagedAt(int32_t row) const { return staged_[static_cast<size_t>(row)]; }
  void Settle();

  int32_t slots_;
  int32_t max_step_rows_;
  int64_t kv_stride_;
  AlignedBuffer<float> keys_;      // [slots + max_step_rows, kv_stride]: the ring, then the staged
  AlignedBuffer<float> values_;    // [slots + max_step_rows, kv_stride]
  std::vector<int32_t> held_;      // [slots] positions in the settled ring, or kEmpty
  std::vector<int32_t> latest_;    // [slots] last staged row in the slot, or kEmpty
  std::vector<StagedRow> staged_;  // in order of writing; capacity max_step_rows
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_QUANTIZED_EXACT_WINDOW_H_
