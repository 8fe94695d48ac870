// What the host side of kernels shares: grids and checks.
#ifndef LOCKSTEP_ENGINE_DEVICE_LAUNCH_H_
#define LOCKSTEP_ENGINE_DEVICE_LAUNCH_H_

#include <cstdint>

#include "caches/check.h"
#include "engine/device/kernels.h"
#include "engine/device/weight_type.h"
#include "engine/gguf.h"

namespace lockstep::device {

// Blocks that cover `count` elements, `each` of them a block.
inline int32_t BlocksFor(int64_t count, int64_t each) {
  const int64_t blocks = (count + each - 1) / each;
  LS_CHECK(blocks >= 0 && blocks <= INT32_MAX, "{} blocks", blocks);
  return static_cast<int32_t>(blocks);
}

// REQUIRES: the memory has `count` elements at least.
template <typename T>
void CheckSize(const char* what, Global<T> memory, int64_t count) {
  LS_CHECK(memory.size >= count, "{}: {} elements, {} are needed", what, memory.size, count);
}

// The first `count` elements: kernels take sizes from what they are given.
template <typename T>
Global<T> First(const char* what, Global<T> memory, int64_t count) {
  CheckSize(what, memory, count);
  return {memory.data, count};
}

// Bytes of the blocks of rows * cols elements that are wanted, or empty.
inline Global<uint8_t> BlocksOf(Global<uint8_t> blocks, int64_t rows, int64_t cols) {
  if (blocks.size == 0) return {};
  LS_CHECK(cols % 32 == 0, "rows of {} elements are no whole blocks", cols);
  return First("blocks", blocks, QuantizedBytes(rows, static_cast<int32_t>(cols)));
}

inline WeightType WeightTypeOf(GgmlType type) {
  switch (type) {
#define LOCKSTEP_SAME(name) \
  case GgmlType::name:      \
    return WeightType::name;
    LOCKSTEP_FLOAT_WEIGHTS(LOCKSTEP_SAME)
    LOCKSTEP_QUANT_WEIGHTS(LOCKSTEP_SAME)
#undef LOCKSTEP_SAME
  }
  LS_CHECK(false, "weights of type {}", static_cast<uint32_t>(type));
  return WeightType::kF32;
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_LAUNCH_H_
