// Kernels over rows of activations: embedding, RMSNorm, quantization, gate, sums. For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_ROW_KERNELS_H_
#define LOCKSTEP_ENGINE_DEVICE_ROW_KERNELS_H_

#include <cstdint>

#include "engine/device/reduce.h"
#include "engine/device/weight_lines.h"

namespace lockstep::device {

// Grid: [cols / kThreads, tokens].
struct EmbedKernel {
  static constexpr char kName[] = "embed";
  static constexpr int32_t kThreads = 256;
  struct Args {
    WeightType type;
    int32_t cols;
    float scale;  // 1: none
    Global<const uint8_t> table;
    Global<const int32_t> tokens;
    Global<float> out;  // [tokens, cols]
  };

  template <typename Bytes>
  LOCKSTEP_KERNEL static float Element(WeightType type, const Bytes& table, int32_t cols,
                                       int32_t row, int32_t k) {
    switch (type) {
#define LOCKSTEP_ELEMENT(name) \
  case WeightType::name:       \
    return LoadWeight<WeightType::name>(table, cols, row, k);
      LOCKSTEP_FLOAT_WEIGHTS(LOCKSTEP_ELEMENT)
      LOCKSTEP_QUANT_WEIGHTS(LOCKSTEP_ELEMENT)
#undef LOCKSTEP_ELEMENT
    }
    return 0;
  }

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto table = block.Use(args.table);
    const auto tokens = block.Use(args.tokens);
    const auto out = block.Use(args.out);
    block.template ForThreads<kThreads>([&](int32_t t) {
      const int32_t k = block.x() * kThreads + t;
      if (k >= args.cols) return;
      float value = Element(args.type, table, args.cols, tokens[block.y()], k);
      if (args.scale != 1.0f) value = value * args.scale;
      out[block.y() * int64_t{args.cols} + k] = value;
    });
  }
};

// Grid: [rows]. The 16 lanes of tree16 are the work of 16 threads; the others bring the elements.
struct RmsNormKernel {
  static constexpr char kName[] = "rms_norm";
  static constexpr int32_t kThreads = 256;
  static constexpr int32_t kTile = 2048;  // elements; a multiple of the lanes
  struct Args {
    int32_t n;
    float eps;
    Global<const float> x;       // [rows, n]
    Global<const float> weight;  // [n]
    Global<float> y;             // may be x
    Global<uint8_t> blocks;      // or empty
    Global<float> residual;      // [rows, n], or empty
  };
  template <typename Block>
  struct SharedOf {
    SharedArray<Block, float, kTile> tile;
    SharedArray<Block, float, kTreeLanes> lanes;
    QuantizeShared<Block, kThreads> quantize;
  };

  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto x = block.Use(args.x);
    auto& shared = block.template Shared<SharedOf<Block>>();
    const int64_t row = block.x() * int64_t{args.n};
    PerThread<Block, float, kThreads> lane;
    for (int32_t begin = 0; begin < args.n; begin += kTile) {
      const int32_t count = args.n - begin < kTile ? args.n - begin : kTile;
      block.template ForThreads<kThreads>([&](int32_t t) {
        for (int32_t i = t; i < count; i += kThreads) shared.tile[i] = x[row + begin + i];
      });
      block.template ForThreads<kThreads>([&](int32_t t) {
        if (t >= kTreeLanes) return;
        float acc = begin == 0 ? 0.0f : lane[t];
        for (int32_t i = t; i < count; i += kTreeLanes) {
          const float value = shared.tile[i];
          acc = Fma(value, value, acc);
        }
        lane[t] = acc;
        shared.lanes[t] = acc;
      });
    }
    Finish(block, args, shared);
  }

 private:
  template <typename Block>
  LOCKSTEP_KERNEL static void Finish(const Block& block, const Args& args,
                                     SharedOf<Block>& shared) {
    const auto x = block.Use(args.x);
    const auto weight = block.Use(args.weight);
    const auto y = block.Use(args.y);
    const auto blocks = block.Use(args.blocks);
    const auto residual = block.Use(args.residual);
    const int64_t row = block.x() * int64_t{args.n};
    PerThread<Block, Floats4, kThreads> values;
    for (int32_t begin = 0; begin < args.n; begin += 4 * kThreads) {
      block.template ForThreads<kThreads>([&](int32_t t) {
        const float mean = SumLanes(shared.lanes) / static_cast<float>(args.n);
        const float r = 1.0f / SquareRoot(mean + args.eps);
        for (int32_t j = 0; j < 4; ++j) {
          const int32_t i = begin + 4 * t + j;
          if (i >= args.n) break;
          const float value = (x[row + i] * r) * weight[i];
          y[row + i] = value;
          values[t].v[j] = value;
          if (residual.size() > 0) residual[row + i] = residual[row + i] + value;
        }
      });
      if (blocks.size() > 0) {
        StoreQuantized<kThreads>(block, shared.quantize, values, row + begin, row + args.n, blocks);
      }
    }
  }
};

// Grid: [elements / (4 kThreads)].
struct QuantizeActivationsKernel {
  static constexpr char kName[] = "quantize_activations";
  static constexpr int32_t kThreads = 128;
  struct Args {
    Global<const float> x;
    Global<uint8_t> blocks;
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto x = block.Use(args.x);
    auto& shared = block.template Shared<QuantizeShared<Block, kThreads>>();
    const int64_t first = block.x() * int64_t{4 * kThreads};
    PerThread<Block, Floats4, kThreads> values;
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int32_t j = 0; j < 4 && first + 4 * t + j < x.size(); ++j) {
        values[t].v[j] = x[first + 4 * t + j];
      }
    });
    StoreQuantized<kThreads>(block, shared, values, first, x.size(), block.Use(args.blocks));
  }
};

// activation(gate) * up; GELU by its tanh approximation (engine/ARITHMETIC.md 4.6).
// Grid: [elements / (4 kThreads)].
template <bool kGelu>
struct GateKernel {
  static constexpr const char* kName = kGelu ? "gelu_gate" : "silu_gate";
  static constexpr int32_t kThreads = 128;
  struct Args {
    Global<const float> gate;
    Global<const float> up;
    Global<float> out;       // may be gate
    Global<uint8_t> blocks;  // or empty
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto gate = block.Use(args.gate);
    const auto up = block.Use(args.up);
    const auto out = block.Use(args.out);
    const auto blocks = block.Use(args.blocks);
    auto& shared = block.template Shared<QuantizeShared<Block, kThreads>>();
    const int64_t first = block.x() * int64_t{4 * kThreads};
    PerThread<Block, Floats4, kThreads> values;
    block.template ForThreads<kThreads>([&](int32_t t) {
      for (int32_t j = 0; j < 4 && first + 4 * t + j < out.size(); ++j) {
        const int64_t i = first + 4 * t + j;
        const float value = Activated(gate[i]) * up[i];
        out[i] = value;
        values[t].v[j] = value;
      }
    });
    if (blocks.size() > 0) {
      StoreQuantized<kThreads>(block, shared, values, first, out.size(), blocks);
    }
  }

 private:
  LOCKSTEP_KERNEL static float Activated(float g) {
    float w = g;
    if constexpr (kGelu) {
      const float cubic = Fma(0x1.6e4e26p-5f, g * g, 1.0f);
      w = (g * cubic) * 0x1.988454p+0f;
    }
    return g / (1.0f + Exp(FloatOf(BitsOf(w) ^ 0x80000000u)));
  }
};

// Grid: [elements / kThreads].
struct ScaleAndAddKernel {
  static constexpr char kName[] = "scale_and_add";
  static constexpr int32_t kThreads = 256;
  struct Args {
    float scale;  // 1: none
    Global<float> x;
    Global<float> residual;  // or empty
  };
  template <typename Block>
  LOCKSTEP_KERNEL static void Run(const Block& block, const Args& args) {
    const auto x = block.Use(args.x);
    const auto residual = block.Use(args.residual);
    block.template ForThreads<kThreads>([&](int32_t t) {
      const int64_t i = block.x() * int64_t{kThreads} + t;
      if (i >= x.size()) return;
      float value = x[i];
      if (args.scale != 1.0f) {
        value = value * args.scale;
        x[i] = value;
      }
      if (residual.size() > 0) residual[i] = residual[i] + value;
    });
  }
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_ROW_KERNELS_H_
