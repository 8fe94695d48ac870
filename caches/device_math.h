// Bits of floats and halves for device kernels, the same under nvcc and the host's compiler. For
// nvcc too: no fmt, no standard containers.
#ifndef LOCKSTEP_CACHES_DEVICE_MATH_H_
#define LOCKSTEP_CACHES_DEVICE_MATH_H_

#include <cstdint>
#include <cstring>

#include "caches/device_kernel.h"

namespace lockstep::device {

#if defined(__CUDA_ARCH__)
LOCKSTEP_KERNEL uint32_t BitsOf(float value) { return __float_as_uint(value); }
LOCKSTEP_KERNEL float FloatOf(uint32_t bits) { return __uint_as_float(bits); }
#else
LOCKSTEP_KERNEL uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
LOCKSTEP_KERNEL float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
#endif

// binary16 to binary32, exact; a NaN stays a NaN. By the processor's instruction where there is
// one.
LOCKSTEP_KERNEL float WidenF16(uint16_t half) {
#if defined(__CUDACC__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + (112u << 23);  // exponent bias 15 becomes 127
  const uint32_t special = normal + (112u << 23);            // infinity and NaN: exponent 255
  const uint32_t small = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t bits = magnitude >= 0x7c00u ? special : magnitude < 0x400u ? small : normal;
  return FloatOf(bits | sign);
#endif
}
LOCKSTEP_KERNEL float WidenBF16(uint16_t half) {
  return FloatOf(static_cast<uint32_t>(half) << 16);
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_CACHES_DEVICE_MATH_H_
