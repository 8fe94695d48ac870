#include <cstddef>
#include <span>

#include "caches/check.h"
#include "engine/kernels.h"

namespace lockstep {
namespace {

constexpr size_t kLanes = 16;

// The largest number, -infinity when there is none. Lane by lane, so that it becomes vector code; a
// comparison with NaN is false, so NaN never wins.
float LargestNumber(std::span<const float> values) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = -__builtin_inff();
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    }
  }
  float largest = -__builtin_inff();
  for (; i < values.size(); ++i) largest = values[i] > largest ? values[i] : largest;
  for (float lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

}  // namespace

int32_t ArgMax(std::span<const float> values) {
  LS_CHECK(!values.empty(), "argmax of nothing");
  const float largest = LargestNumber(values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == largest) return static_cast<int32_t>(i);
  }
  return 0;  // nothing but NaN
}

}  // namespace lockstep
