// A mixture of experts (engine/ARITHMETIC.md 4.8): which experts a row uses and with what weights,
// and the sum of what they give. For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_EXPERT_KERNELS_H_
#define LOCKSTEP_ENGINE_DEVICE_EXPERT_KERNELS_H_

#include <cstdint>

#include "engine/device/limits.h"
#include "engine/device/reduce.h"

namespace lockstep::device {

// Grid: [rows]. A thread finds the places of some experts in the order of their logits by counting
// those that come before.
struct RouteKernel {
  static constexpr char kName[] = "route";
  static constexpr int32_t kThreads = 128;
  struct Args {
    int32_t experts;
    int32_t used;
    int32_t normalize;
    Global<const float> logits;  // [rows, experts]
    Global<int32_t> chosen;      // [rows, used], in increasing order
    Global<float> weights;       // [rows, used]
  };
  template <typename Block>
  struct SharedOf {
    SharedArray<Block, float, kExpertsMax> logits;
    SharedArray<Block, float, kExpertsMax> e;  // exp(logit - the largest)
    SharedArray<Block, int32_t, kExpertsMax> taken;
    SharedArray<Block, float, kExpertsMax> weights;  // of the chosen
    SharedArray<Block, float, kTreeLanes> lanes;
  };

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    auto& shared = block.template Shared<SharedOf<Block>>();
    const auto logits = block.Use(args.logits);
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int32_t j = t; j < args.experts; j += kThreads) {
        shared.logits[j] = logits[block.x() * int64_t{args.experts} + j];
      }
    });
    block.template ForThreads<kThreads>([&](int32_t t) { Choose(args, t, shared); });
    block.template ForThreads<kThreads>([&](int32_t t) {
      if (t >= kTreeLanes) return;
      float acc = 0.0f;
      for (int32_t j = t; j < args.experts; j += kTreeLanes) acc = acc + shared.e[j];
      shared.lanes[t] = acc;
    });
    const auto chosen = block.Use(args.chosen);
    block.template ForThreads<kThreads>([&](int32_t t) {
      const float sum = SumLanes(shared.lanes);
      for (int32_t j = t; j < args.experts; j += kThreads) {
        if (shared.taken[j] == 0) continue;
        int32_t place = 0;
        for (int32_t i = 0; i < j; ++i) place += shared.taken[i];
        chosen[block.x() * int64_t{args.used} + place] = j;
        shared.weights[place] = shared.e[j] / sum;
      }
    });
    const auto weights = block.Use(args.weights);
    block.template ForThreads<kThreads>([&](int32_t t) {
      float sum = shared.weights[0];
      for (int32_t i = 1; i < args.used; ++i) sum = sum + shared.weights[i];
      for (int32_t i = t; i < args.used; i += kThreads) {
        float weight = shared.weights[i];
        if (args.normalize != 0) weight = weight / sum;
        weights[block.x() * int64_t{args.used} + i] = weight;
      }
    });
  }

 private:
  // Whether expert i, of logit a, comes before expert j, of logit b.
  LOCKSTEP_KERNEL static bool Before(float a, int32_t i, float b, int32_t j) {
    const bool larger = a > b || (b != b && a == a);
    const bool smaller = b > a || (a != a && b == b);
    return larger || (!smaller && i < j);
  }

  template <typename Shared>
  LOCKSTEP_KERNEL static void Choose(const Args& args, int32_t t, Shared& shared) {
    float top = FloatOf(0xff800000u);  // -infinity
    for (int32_t i = 0; i < args.experts; ++i) {
      const float logit = shared.logits[i];
      top = logit > top ? logit : top;
    }
    for (int32_t j = t; j < args.experts; j += kThreads) {
      const float logit = shared.logits[j];
      int32_t before = 0;
      for (int32_t i = 0; i < args.experts; ++i) {
        before += Before(shared.logits[i], i, logit, j) ? 1 : 0;
      }
      shared.taken[j] = before < args.used ? 1 : 0;
      shared.e[j] = Exp(logit - top);
    }
  }
};

// residual += the sum of experts. Grid: [dim / kThreads, rows].
struct AddExpertsKernel {
  static constexpr char kName[] = "add_experts";
  static constexpr int32_t kThreads = 256;
  struct Args {
    int32_t dim;
    int32_t used;
    Global<const float> weights;       // [rows, used]
    Global<const float> outputs;       // [rows, used, dim]
    Global<const float> shared_logit;  // [rows], or empty without a shared expert
    Global<const float> shared;        // [rows, dim], likewise
    Global<float> residual;            // [rows, dim]
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto weights = block.Use(args.weights);
    const auto outputs = block.Use(args.outputs);
    const auto shared_logit = block.Use(args.shared_logit);
    const auto shared = block.Use(args.shared);
    const auto residual = block.Use(args.residual);
    block.template ForThreads<kThreads>([&](int32_t t) {
      const int32_t i = block.x() * kThreads + t;
      if (i >= args.dim) return;
      const int64_t first = block.y() * int64_t{args.used};
      float sum = outputs[first * args.dim + i] * weights[first];
      for (int32_t slot = 1; slot < args.used; ++slot) {
        const float part = outputs[(first + slot) * args.dim + i] * weights[first + slot];
        sum = sum + part;
      }
      const int64_t at = block.y() * int64_t{args.dim} + i;
      if (shared.size() > 0) {
        const float part = shared[at] * Sigmoid(shared_logit[block.y()]);
        sum = sum + part;
      }
      residual[at] = residual[at] + sum;
    });
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_EXPERT_KERNELS_H_
