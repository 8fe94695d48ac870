// The rows of a synthetic matrix as a GGUF type stores them.
#ifndef LOCKSTEP_ENGINE_MODEL_SYNTHETIC_ROWS_H_
#define LOCKSTEP_ENGINE_MODEL_SYNTHETIC_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "caches/check.h"
#include "engine/gguf.h"
#include "engine/quantize.h"

namespace lockstep {

// `next()` gives one element after another. `name` stands in the message when whole blocks do not
// make up a row (LS_CHECK).
template <typename Next>
std::vector<std::byte> SyntheticRows(std::string_view name, GgmlType type, int32_t rows,
                                     int32_t cols, const Next& next) {
  const GgmlTypeTraits traits = *TraitsOf(type);
  LS_CHECK(cols % traits.block_elements == 0, "{}: {} columns as {}", name, cols, traits.name);
  const auto row_bytes = static_cast<size_t>(cols / traits.block_elements * traits.block_bytes);
  std::vector<float> row(static_cast<size_t>(cols));
  std::vector<std::byte> data(static_cast<size_t>(rows) * row_bytes);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    for (float& value : row) value = next();
    QuantizeWeights(type, row, std::span(data).subspan(r * row_bytes, row_bytes));
  }
  return data;
}

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_SYNTHETIC_ROWS_H_
