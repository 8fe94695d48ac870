#include "caches/quantized/exact_window.h"

#include <algorithm>

#include "caches/check.h"
#include "caches/codec.h"

namespace lockstep {

ExactWindow::ExactWindow(const WindowShape& shape)
    : shape_(shape),
      row_bytes_(RowBytes(shape.type, shape.kv_stride)),
      index_(shape.slots, shape.max_step_rows),
      keys_(index_.rows() * row_bytes_),
      values_(index_.rows() * row_bytes_) {
  LS_CHECK(shape.type == RowType::kF32 || shape.type == RowType::kF16, "a window of {}",
           RowTypeName(shape.type));
}

void ExactWindow::Stage(std::span<const int32_t> positions, std::span<const float> keys,
                        std::span<const float> values) {
  Settle();
  index_.Stage(positions);
  // Rows follow one another, so they are one long row.
  const auto first = static_cast<size_t>(index_.first_staged() * row_bytes_);
  const size_t bytes = positions.size() * static_cast<size_t>(row_bytes_);
  EncodeRow(shape_.type, keys, keys_.span().subspan(first, bytes));
  EncodeRow(shape_.type, values, values_.span().subspan(first, bytes));
}

void ExactWindow::Settle() {
  const auto first = static_cast<size_t>(index_.first_staged() * row_bytes_);
  const size_t bytes = static_cast<size_t>(index_.staged()) * static_cast<size_t>(row_bytes_);
  index_.Settle([this](int64_t row, int64_t slot) {
    std::ranges::copy(Keys(row), MutableKeys(slot).begin());
    std::ranges::copy(Values(row), MutableValues(slot).begin());
  });
  keys_.Poison(keys_.span().subspan(first, bytes));
  values_.Poison(values_.span().subspan(first, bytes));
}

void ExactWindow::DropFrom(int32_t length) {
  Settle();
  index_.DropFrom(length, [this](int64_t slot) {
    keys_.Poison(MutableKeys(slot));
    values_.Poison(MutableValues(slot));
  });
}

std::span<const std::byte> ExactWindow::Keys(int64_t row) const {
  return keys_.span().subspan(static_cast<size_t>(row * row_bytes_),
                              static_cast<size_t>(row_bytes_));
}

std::span<const std::byte> ExactWindow::Values(int64_t row) const {
  return values_.span().subspan(static_cast<size_t>(row * row_bytes_),
                                static_cast<size_t>(row_bytes_));
}

std::span<std::byte> ExactWindow::MutableKeys(int64_t row) {
  return keys_.span().subspan(static_cast<size_t>(row * row_bytes_),
                              static_cast<size_t>(row_bytes_));
}

std::span<std::byte> ExactWindow::MutableValues(int64_t row) {
  return values_.span().subspan(static_cast<size_t>(row * row_bytes_),
                                static_cast<size_t>(row_bytes_));
}

void ExactWindow::CopyFrom(const ExactWindow& other) {
  LS_CHECK(shape_.kv_stride == other.shape_.kv_stride && shape_.type == other.shape_.type,
           "windows of different rows");
  index_.CopyFrom(other.index_);
  index_.ForEachRow([&](int64_t row) {
    std::ranges::copy(other.Keys(row), MutableKeys(row).begin());
    std::ranges::copy(other.Values(row), MutableValues(row).begin());
  });
}

}  // namespace lockstep
