// What the NEON kernels share. Internal linkage and no standard library, for the reasons of bits.h.
#ifndef LOCKSTEP_ENGINE_KERNELS_NEON_VECTORS_H_
#define LOCKSTEP_ENGINE_KERNELS_NEON_VECTORS_H_

#include <arm_neon.h>

#include <cstdint>

#include "engine/kernels/lanes.h"

namespace lockstep::internal {
namespace {

// The 4 bytes at `from`, 4 times.
inline int8x16_t SplatFour(const int8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof four);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

inline float32x4_t NeonFloats(Floats v) { return __builtin_bit_cast(float32x4_t, v); }
inline Floats LaneFloats(float32x4_t v) { return __builtin_bit_cast(Floats, v); }

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_NEON_VECTORS_H_
