// Where rows lie in the contiguous caches: [num_layers, max_length, row], every offset in 64 bits
// [U7].
#ifndef LOCKSTEP_CACHES_KV_LAYOUT_H_
#define LOCKSTEP_CACHES_KV_LAYOUT_H_

#include <cstdint>

namespace lockstep {

// In units of the caller's choice, elements or bytes.
struct RowLayout {
  int64_t layer_stride = 0;  // from row 0 of a layer to row 0 of the next
  int64_t row_stride = 0;    // from a row to the next

  int64_t Offset(int32_t layer, int32_t row) const {
    return layer * layer_stride + row * row_stride;
  }
};

// Rows without gaps, each layer's first row on a multiple of `alignment` (a power of two).
inline RowLayout MakeRowLayout(int64_t rows, int64_t row_stride, int64_t alignment) {
  return {(rows * row_stride + alignment - 1) & -alignment, row_stride};
}

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_KV_LAYOUT_H_
