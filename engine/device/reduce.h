// What kernels of several files share: tree16's end, and the quantization of activations
// (engine/ARITHMETIC.md 2 and 4.1).
#ifndef LOCKSTEP_ENGINE_DEVICE_REDUCE_H_
#define LOCKSTEP_ENGINE_DEVICE_REDUCE_H_

#include <cstdint>

#include "engine/device/math.h"

namespace lockstep::device {

constexpr int32_t kTreeLanes = 16;

// The sum of tree16's lanes, of anything with an index.
template <typename Lanes>
LOCKSTEP_KERNEL float SumLanes(Lanes&& lanes) {
  float sums[8];
  for (int32_t j = 0; j < 8; ++j) sums[j] = lanes[j] + lanes[j + 8];
  for (int32_t j = 0; j < 4; ++j) sums[j] = sums[j] + sums[j + 4];
  for (int32_t j = 0; j < 2; ++j) sums[j] = sums[j] + sums[j + 2];
  return sums[0] + sums[1];
}

// Where the parts of an ActivationBlock lie.
constexpr int64_t kBlockElements = 32;
constexpr int64_t kBlockBytes = 40;
constexpr int64_t kBlockScaleAt = 32;
constexpr int64_t kBlockOffsetAt = 36;

// Eight threads share a block of 32 elements, four each.
constexpr int32_t kBlockThreads = 8;

template <typename Block, int32_t kThreads>
struct QuantizeShared {
  SharedArray<Block, uint32_t, kThreads> tops;  // bits of the largest |x|, of a thread
  SharedArray<Block, int32_t, kThreads> sums;   // of a thread's quants
};

struct QuantizedBlock {
  float scale;
  float inverse;
  bool regular;
};

// `top`: the bits of the block's largest |x|, which are ordered as the values are, infinity and NaN
// last.
LOCKSTEP_KERNEL QuantizedBlock ScalesOf(uint32_t top) {
  const float amax = FloatOf(top);
  const float inverse = 127.0f / amax;
  const bool finite = top < 0x7f800000u;
  const bool regular = finite && inverse <= 0x1.fffffep+127f;
  const float scale = regular ? amax / 127.0f : finite ? 0.0f : FloatOf(0x7fc00000u);
  return {scale, inverse, regular};
}

// Quantizes elements [first, first + 4 kThreads) of `end`, of which thread t holds those from first
// + 4 t on. `first` and `end` are multiples of 32; `out` has the blocks of all elements, as bytes.
template <int32_t kThreads, typename Block, typename Out>
LOCKSTEP_KERNEL void StoreQuantized(const Block& block, QuantizeShared<Block, kThreads>& shared,
                                    PerThread<Block, Floats4, kThreads>& x, int64_t first,
                                    int64_t end, const Out& out) {
  block.template ForThreads<kThreads>([&](int32_t t) {
    if (first + 4 * t >= end) return;
    uint32_t top = 0;
    for (int32_t i = 0; i < 4; ++i) {
      const uint32_t magnitude = BitsOf(x[t].v[i]) & 0x7fffffffu;
      top = magnitude > top ? magnitude : top;
    }
    shared.tops[t] = top;
  });
  block.template ForThreads<kThreads>([&](int32_t t) {
    const int64_t element = first + 4 * t;
    if (element >= end) return;
    uint32_t top = 0;
    for (int32_t i = 0; i < kBlockThreads; ++i) {
      const uint32_t other = shared.tops[t / kBlockThreads * kBlockThreads + i];
      top = other > top ? other : top;
    }
    const QuantizedBlock scales = ScalesOf(top);
    uint32_t word = 0;
    int32_t sum = 0;
    for (int32_t i = 0; scales.regular && i < 4; ++i) {
      const float rounded = x[t].v[i] * scales.inverse + kRoundMagic;
      const uint32_t quant = BitsOf(rounded) - kRoundMagicBits;
      word |= (quant & 0xffu) << (8 * i);
      sum += static_cast<int32_t>(quant);
    }
    shared.sums[t] = sum;
    const int64_t at = element / kBlockElements * kBlockBytes;
    out.Store(at + element % kBlockElements, word);
    if (t % kBlockThreads == 0) out.Store(at + kBlockScaleAt, scales.scale);
  });
  block.template ForThreads<kThreads>([&](int32_t t) {
    const int64_t element = first + 4 * t;
    if (element >= end || t % kBlockThreads != 0) return;
    int32_t sum = 0;
    for (int32_t i = 0; i < kBlockThreads; ++i) sum += shared.sums[t + i];
    out.Store(element / kBlockElements * kBlockBytes + kBlockOffsetAt, -128 * sum);
  });
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_REDUCE_H_
