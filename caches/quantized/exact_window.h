// ExactWindow: the rows of one layer that a quantized cache still holds exactly, or rounded to F16
// where `type` says so. What is held when is WindowIndex's.
#ifndef LOCKSTEP_CACHES_QUANTIZED_EXACT_WINDOW_H_
#define LOCKSTEP_CACHES_QUANTIZED_EXACT_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "caches/aligned_buffer.h"
#include "caches/kv_cache.h"
#include "caches/quantized/window_index.h"

namespace lockstep {

struct WindowShape {
  int32_t slots = 0;
  int32_t max_step_rows = 0;
  int64_t kv_stride = 0;  // elements
  RowType type = RowType::kF32;
};

// Nothing allocates after construction.
class ExactWindow {
 public:
  // REQUIRES: slots > 0, max_step_rows > 0, kv_stride > 0; the type is F32 or F16.
  explicit ExactWindow(const WindowShape& shape);

  // Settles what is staged, then stages the rows of a write, in its order. Positions may repeat and
  // decrease. REQUIRES: at most max_step_rows of them, none negative; kv_stride elements for each.
  void Stage(std::span<const int32_t> positions, std::span<const float> keys,
             std::span<const float> values);

  // Settles what is staged, then lets go of every position >= length.
  void DropFrom(int32_t length);

  // As WindowIndex's.
  int32_t StepRowOf(int32_t position) const { return index_.StepRowOf(position); }
  int32_t LastStepRow() const { return index_.LastStepRow(); }
  int64_t Find(int32_t position, int32_t step_row) const { return index_.Find(position, step_row); }

  const WindowIndex& index() const { return index_; }
  std::span<const std::byte> Keys(int64_t row) const;    // [kv_stride], stored as `type`
  std::span<const std::byte> Values(int64_t row) const;  // likewise

  // The same rows, staged ones as such. REQUIRES: both have the same shape.
  void CopyFrom(const ExactWindow& other);

  // Restoring: makes `position` held and returns its row, to be filled through the mutable spans.
  // REQUIRES: nothing is staged.
  int64_t Hold(int32_t position) { return index_.Hold(position); }
  std::span<std::byte> MutableKeys(int64_t row);
  std::span<std::byte> MutableValues(int64_t row);

 private:
  void Settle();

  WindowShape shape_;
  int64_t row_bytes_;
  WindowIndex index_;
  AlignedBuffer<std::byte> keys_;    // [slots + max_step_rows, row_bytes]
  AlignedBuffer<std::byte> values_;  // [slots + max_step_rows, row_bytes]
};

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_QUANTIZED_EXACT_WINDOW_H_
