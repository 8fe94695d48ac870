// LoRA adapters: a low-rank change of a model's matrices that is added beside them.
//
//   y = W x + bias + sum over adapters of scale * B (A x)       A: [rank, inputs], B: [outputs,
//   rank]
//
// Hu et al. 2021, https://arxiv.org/abs/2106.09685. Files are GGUF as llama.cpp writes them:
// general.type "adapter", adapter.type "lora", adapter.lora.alpha, and for each changed matrix two
// tensors, "blk.0.attn_q.weight.lora_a" and "...lora_b".
#ifndef LOCKSTEP_ENGINE_ADAPTER_H_
#define LOCKSTEP_ENGINE_ADAPTER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/digest.h"
#include "engine/kernels.h"
#include "engine/model.h"

namespace lockstep {

// The matrices of a layer that an adapter may change.
enum class AdapterTarget : uint8_t { kQuery, kKey, kValue, kAttnOut, kGate, kUp, kDown };
inline constexpr size_t kAdapterTargets = 7;

// The matrix's tensor without its layer: "attn_q.weight", ...
std::string_view AdapterTensorName(AdapterTarget target);

// Whether the model has one such matrix a layer: experts have many, and stay as they are.
bool HasAdapterTarget(const ModelConfig& config, AdapterTarget target);

// [outputs, inputs] of the matrix.
struct MatrixShape {
  int32_t outputs = 0;
  int32_t inputs = 0;
};
MatrixShape AdapterShape(const ModelConfig& config, AdapterTarget target);  // REQUIRES: it has it

// The change of one matrix. Matrices of quantized types are decoded to F32 on loading, so that
// activations are never quantized for them.
struct LoraPair {
  PackedMatrix a;   // [rank, inputs]
  PackedMatrix b;   // [outputs, rank]
  float scale = 1;  // alpha / rank; 1 in a file whose alpha is 0
};

class LoraAdapter {
 public:
  // Throws Error for a file that is no LoRA adapter, is one of another architecture, changes what
  // cannot be changed here (token_embd, output, norms: the tensor is named), has one matrix of a
  // pair alone, or has shapes that are not the model's.
  static std::shared_ptr<const LoraAdapter> Load(const GgufFile& file, const ModelConfig& config);

  const std::string& name() const { return name_; }  // general.name, or the path
  const Digest& digest() const { return digest_; }   // of the file's bytes
  int32_t max_rank() const { return max_rank_; }
  int64_t pairs() const { return pair_count_; }

  // nullptr where it changes nothing. REQUIRES: a layer of the model.
  const LoraPair* Find(int32_t layer, AdapterTarget target) const {
    const auto& pair = layers_[static_cast<size_t>(layer)][static_cast<size_t>(target)];
    return pair ? &*pair : nullptr;
  }

  // Whether the model's matrices have the shapes of the one that it was loaded for.
  bool Fits(const ModelConfig& config) const { return shape_ == ShapeOf(config); }

 private:
  using Layer = std::array<std::optional<LoraPair>, kAdapterTargets>;
  using Shape = std::array<int32_t, 5>;

  static Shape ShapeOf(const ModelConfig& config) {
    return {config.num_layers, config.dim, config.q_dim(), config.kv_dim(), config.ffn_dim};
  }

  std::string name_;
  Digest digest_;
  Shape shape_ = {};
  std::vector<Layer> layers_;
  int32_t max_rank_ = 0;
  int64_t pair_count_ = 0;
};

// An adapter in use. With a scale of 0 it is not applied at all.
struct AppliedAdapter {
  std::shared_ptr<const LoraAdapter> adapter;
  float scale = 1;  // finite; times the pair's own, rounded once
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_ADAPTER_H_
