// Kernels that do one thing as fast as a device can.
#ifndef LOCKSTEP_REPORTS_DEVICE_LIMIT_KERNELS_H_
#define LOCKSTEP_REPORTS_DEVICE_LIMIT_KERNELS_H_

#include "caches/device_kernel.h"

namespace lockstep {

inline constexpr int32_t kLimitThreads = 256;
inline constexpr int32_t kLimitChains = 8;  // independent ones, which hide an instruction's latency

struct alignas(16) LimitQuad {
  uint32_t words[4];
};

// 16 bytes a thread.
struct LimitCopyKernel {
  static constexpr char kName[] = "limit_copy";
  static constexpr int32_t kThreads = kLimitThreads;
  struct Args {
    Global<const uint8_t> from;
    Global<uint8_t> to;
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto from = block.Use(args.from);
    const auto to = block.Use(args.to);
    block.template ForThreads<kThreads>([&](int32_t t) {
      const int64_t at = (block.x() * int64_t{kThreads} + t) * 16;
      if (at < to.size()) to.Store(at, from.template Load<LimitQuad>(at));
    });
  }
};

struct LimitChainArgs {
  int32_t iterations = 0;
  Global<uint32_t> results;  // one a thread of the grid
};

struct LimitFmaKernel {
  static constexpr char kName[] = "limit_fma";
  static constexpr int32_t kThreads = kLimitThreads;
  using Args = LimitChainArgs;

  LOCKSTEP_KERNEL static float Fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
  }
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto results = block.Use(args.results);
    block.template ForThreads<kThreads>([&](int32_t t) {
      float chains[kLimitChains];
      for (int32_t c = 0; c < kLimitChains; ++c) chains[c] = static_cast<float>(t + c);
      for (int32_t i = 0; i < args.iterations; ++i) {
        for (int32_t c = 0; c < kLimitChains; ++c) chains[c] = Fma(chains[c], 0.5f, 3.0f);
      }
      float sum = 0.0f;
      for (int32_t c = 0; c < kLimitChains; ++c) sum = sum + chains[c];
      results[block.x() * int64_t{kThreads} + t] = static_cast<uint32_t>(sum);
    });
  }
};

struct LimitDotKernel {
  static constexpr char kName[] = "limit_dot";
  static constexpr int32_t kThreads = kLimitThreads;
  using Args = LimitChainArgs;

  // Four products of signed bytes, added to c.
  LOCKSTEP_KERNEL static int32_t Dot(uint32_t a, uint32_t b, int32_t c) {
#if defined(__CUDA_ARCH__)
    return __dp4a(static_cast<int32_t>(a), static_cast<int32_t>(b), c);
#else
    uint32_t sum = static_cast<uint32_t>(c);
    for (int32_t i = 0; i < 32; i += 8) {
      const auto x = static_cast<int8_t>(a >> i);
      const auto y = static_cast<int8_t>(b >> i);
      sum += static_cast<uint32_t>(x * y);
    }
    return static_cast<int32_t>(sum);
#endif
  }
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto results = block.Use(args.results);
    block.template ForThreads<kThreads>([&](int32_t t) {
      int32_t chains[kLimitChains];
      for (int32_t c = 0; c < kLimitChains; ++c) chains[c] = t + c;
      for (int32_t i = 0; i < args.iterations; ++i) {
        // A chain's own bits are one factor, so that no iteration can be left out.
        for (int32_t c = 0; c < kLimitChains; ++c) {
          chains[c] = Dot(static_cast<uint32_t>(chains[c]), 0x01ff02feu, chains[c]);
        }
      }
      uint32_t sum = 0;
      for (int32_t c = 0; c < kLimitChains; ++c) sum += static_cast<uint32_t>(chains[c]);
      results[block.x() * int64_t{kThreads} + t] = sum;
    });
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_DEVICE_LIMIT_KERNELS_H_
