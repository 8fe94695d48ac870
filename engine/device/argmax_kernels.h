// Argmax (engine/ARITHMETIC.md 4.7), in two launches: the best of each stretch, then of these. For
// nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_ARGMAX_KERNELS_H_
#define LOCKSTEP_ENGINE_DEVICE_ARGMAX_KERNELS_H_

#include <cstdint>

#include "engine/device/math.h"

namespace lockstep::device {

constexpr int32_t kArgMaxThreads = 256;
constexpr int32_t kArgMaxStretch = 4096;  // values of a block of the first launch

// A value and where it is; -1: nothing but NaN so far.
struct Candidate {
  float value;
  int32_t index;
};

LOCKSTEP_KERNEL Candidate Better(Candidate a, Candidate b) {
  if (a.index < 0) return b;
  if (b.index < 0) return a;
  if (a.value == b.value) return a.index < b.index ? a : b;
  return a.value > b.value ? a : b;
}

template <typename Block>
struct ArgMaxShared {
  SharedArray<Block, float, kArgMaxThreads> values;
  SharedArray<Block, int32_t, kArgMaxThreads> indices;

  LOCKSTEP_KERNEL Candidate Get(int32_t t) {
    const float value = values[t];
    const int32_t index = indices[t];
    return {value, index};
  }
  LOCKSTEP_KERNEL void Put(int32_t t, Candidate candidate) {
    values[t] = candidate.value;
    indices[t] = candidate.index;
  }
};

// Of what each thread has put, into place 0.
template <typename Block>
LOCKSTEP_KERNEL void BestOfBlock(const Block& block, ArgMaxShared<Block>& shared) {
  for (int32_t width = kArgMaxThreads / 2; width > 0; width /= 2) {
    block.template ForThreads<kArgMaxThreads>([&](int32_t t) {
      if (t < width) shared.Put(t, Better(shared.Get(t), shared.Get(t + width)));
    });
  }
}

// Grid: [stretches, rows].
struct ArgMaxStretchKernel {
  static constexpr char kName[] = "argmax_stretch";
  static constexpr int32_t kThreads = kArgMaxThreads;
  struct Args {
    int32_t n;
    int32_t stretches;
    Global<const float> values;  // [rows, n]
    Global<int32_t> best;        // [rows, stretches]: indices
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto values = block.Use(args.values);
    const auto best = block.Use(args.best);
    auto& shared = block.template Shared<ArgMaxShared<Block>>();
    block.template ForThreads<kThreads>([&](int32_t t) {
      Candidate mine = {0.0f, -1};
      for (int32_t i = t; i < kArgMaxStretch; i += kThreads) {
        const int32_t index = block.x() * kArgMaxStretch + i;
        if (index >= args.n) break;
        const float value = values[block.y() * int64_t{args.n} + index];
        if (value == value) mine = Better(mine, {value, index});
      }
      shared.Put(t, mine);
    });
    BestOfBlock(block, shared);
    block.template ForThreads<kThreads>([&](int32_t t) {
      if (t == 0) best[block.y() * int64_t{args.stretches} + block.x()] = shared.Get(0).index;
    });
  }
};

// Grid: [1, rows].
struct ArgMaxKernel {
  static constexpr char kName[] = "argmax";
  static constexpr int32_t kThreads = kArgMaxThreads;
  struct Args {
    int32_t n;
    int32_t stretches;
    Global<const float> values;  // [rows, n]
    Global<const int32_t> best;  // [rows, stretches]
    Global<int32_t> out;         // [rows]
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto values = block.Use(args.values);
    const auto best = block.Use(args.best);
    const auto out = block.Use(args.out);
    auto& shared = block.template Shared<ArgMaxShared<Block>>();
    block.template ForThreads<kThreads>([&](int32_t t) {
      Candidate mine = {0.0f, -1};
      for (int32_t i = t; i < args.stretches; i += kThreads) {
        const int32_t index = best[block.y() * int64_t{args.stretches} + i];
        if (index < 0) continue;
        const float value = values[block.y() * int64_t{args.n} + index];
        mine = Better(mine, {value, index});
      }
      shared.Put(t, mine);
    });
    BestOfBlock(block, shared);
    block.template ForThreads<kThreads>([&](int32_t t) {
      if (t != 0) return;
      const int32_t index = shared.Get(0).index;
      out[block.y()] = index < 0 ? 0 : index;
    });
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_ARGMAX_KERNELS_H_
