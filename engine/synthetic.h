// Synthetic models: whole GGUF images, deterministic from a preset and a seed, written by lockstep
// itself, so that every check runs without a downloaded file.
//
// Weights are heavy-tailed (so that logits are not degenerate), made with integer randomness and
// basic IEEE operations only: the image has the same digest on every machine.
#ifndef LOCKSTEP_ENGINE_SYNTHETIC_H_
#define LOCKSTEP_ENGINE_SYNTHETIC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caches/kv_cache.h"
#include "engine/adapter.h"
#include "engine/gguf.h"

namespace lockstep {

struct SyntheticSpec {
  std::string name;
  int32_t dim = 0, ffn_dim = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int32_t vocab_size = 0, context_length = 0;
  GgmlType weight_type = GgmlType::kQ8_0;  // norms and biases stay F32
  // Of embedding, head, value and down projections, as Q4_K_M has Q6_K among Q4_K.
  std::optional<GgmlType> wide_type = {};
  bool tied_head = true;
  bool qkv_bias = false;
  bool qk_norm = false;
  std::string architecture = "llama";      // engine/model/architectures.cc
  float rope_linear = 1;                   // RoPE positions are divided by it
  bool rope_factors = false;               // and each pair's frequency by a factor of its own
  bool multipliers = false;                // scales of embedding, residual, logits and attention
  int32_t window = 0;                      // rows that a query sees at most; 0: all
  int32_t experts = 0, experts_used = 0;   // of a mixture of experts; 0: none
  int32_t expert_dim = 0, shared_dim = 0;  // 0: ffn_dim; no shared expert
  float rope_theta = 10000;
  float attention_cap = 0;  // soft-caps of scores and logits; 0: none
  float logit_cap = 0;
  int32_t rope_dim = 0;    // rotated elements of a head; 0: all
  float yarn = 1;          // YaRN's factor, from a quarter of the context
  bool long_rope = false;  // LongRoPE's two tensors, and an attention factor
};

// "smollm-135m" (the embedded default of `lockstep verify`) and small ones for tests.
std::span<const SyntheticSpec> SyntheticPresets();

// Throws Error naming the presets when there is none of that name.
const SyntheticSpec& SyntheticPreset(std::string_view name);

// The cache geometry of such a model.
KvGeometry SyntheticGeometry(const SyntheticSpec& spec, int32_t max_length);

std::vector<std::byte> MakeSyntheticImage(const SyntheticSpec& spec, uint64_t seed);

// MakeSyntheticImage, opened.
std::shared_ptr<const GgufFile> MakeSyntheticModel(const SyntheticSpec& spec, uint64_t seed);

// A LoRA adapter for a model, whose change is about half of what a projection gives: most matrices
// of most layers, some left out.
struct SyntheticAdapterSpec {
  int32_t rank = 3;
  GgmlType type = GgmlType::kF32;  // REQUIRES: its block divides the rank and the matrices' widths
};

std::vector<std::byte> MakeSyntheticAdapterImage(const ModelConfig& config,
                                                 const SyntheticAdapterSpec& spec, uint64_t seed);

// MakeSyntheticAdapterImage, loaded.
std::shared_ptr<const LoraAdapter> MakeSyntheticAdapter(const ModelConfig& config,
                                                        const SyntheticAdapterSpec& spec,
                                                        uint64_t seed);

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_SYNTHETIC_H_
