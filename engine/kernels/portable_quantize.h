// Activation quantization (engine/ARITHMETIC.md 4.1) in portable C++.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_QUANTIZE_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_QUANTIZE_H_

#include <cstdint>

#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

// 16 integers, and what their lanes come to.
struct IntLanes {
  Ints part[kParts];
};

template <typename Combine>
inline int32_t ReduceLanes(const IntLanes& x, Combine combine) {
  Ints v = x.part[0];
  for (int p = 1; p < kParts; ++p) v = combine(v, x.part[p]);
  using Ints4 = int32_t __attribute__((vector_size(16)));
  Ints4 four[kWidth / 4];
  __builtin_memcpy(four, &v, sizeof v);
  for (int i = 1; i < kWidth / 4; ++i) four[0] = combine(four[0], four[i]);
  const Ints4 two = combine(four[0], __builtin_shufflevector(four[0], four[0], 2, 3, 2, 3));
  return combine(two, __builtin_shufflevector(two, two, 1, 1, 1, 1))[0];
}

// The low bytes of 16 integers.
inline void StoreBytes(const Ints (&x)[kParts], int8_t* to) {
#if defined(__AVX512BW__)
  const Bytes bytes = __builtin_convertvector(x[0], Bytes);
  __builtin_memcpy(to, &bytes, sizeof bytes);
#else
  int32_t lanes[kLanes];
  __builtin_memcpy(lanes, x, sizeof lanes);
  for (int i = 0; i < kLanes; ++i) to[i] = static_cast<int8_t>(lanes[i]);
#endif
}

// One block with a finite, positive reciprocal 127 / amax.
inline void QuantizeRegular(const float* in, float amax, float id, ActivationBlock* out) {
  IntLanes sum = {};
  for (int half = 0; half < kBlock; half += kLanes) {
    const Lanes x = LoadLanes(in + half);
    Ints quants[kParts];
    for (int p = 0; p < kParts; ++p) {
      const Floats rounded = x.part[p] * id + kRoundMagic;
      quants[p] = __builtin_bit_cast(Ints, rounded) - static_cast<int32_t>(BitsOf(kRoundMagic));
      sum.part[p] += quants[p];
    }
    StoreBytes(quants, out->quants + half);
  }
  out->scale = amax / 127.0f;
  out->offset = -128 * ReduceLanes(sum, [](auto a, auto b) { return a + b; });
}

inline void QuantizeActivations(const float* x, int32_t cols, ActivationBlock* blocks) {
  for (int32_t b = 0; b < cols / kBlock; ++b) {
    const float* in = x + int64_t{b} * kBlock;
    const Lanes low = LoadLanes(in), high = LoadLanes(in + kLanes);
    IntLanes magnitude;  // bits of |x|: ordered as the values are, infinity and NaN last
    const auto larger = [](auto one, auto other) { return one > other ? one : other; };
    for (int p = 0; p < kParts; ++p) {
      magnitude.part[p] = larger(__builtin_bit_cast(Ints, low.part[p]) & 0x7fffffff,
                                 __builtin_bit_cast(Ints, high.part[p]) & 0x7fffffff);
    }
    const int32_t top = ReduceLanes(magnitude, larger);
    const float amax = FloatOf(static_cast<uint32_t>(top));
    const float inverse = 127.0f / amax;  // infinite for amax 0 and for amax <= 127 * 2^-128
    if (top < 0x7f800000 && inverse <= 0x1.fffffep+127f) {
      QuantizeRegular(in, amax, inverse, &blocks[b]);
      continue;
    }
    blocks[b] = {.quants = {}, .scale = top < 0x7f800000 ? 0.0f : __builtin_nanf(""), .offset = 0};
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_QUANTIZE_H_
