// What the name of an architecture stands for beyond its metadata: the model families of
// general.architecture, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
#ifndef LOCKSTEP_ENGINE_MODEL_ARCHITECTURES_H_
#define LOCKSTEP_ENGINE_MODEL_ARCHITECTURES_H_

#include <span>
#include <string>
#include <string_view>

#include "engine/model.h"

namespace lockstep {

struct Architecture {
  std::string_view name;
  RopePairing rope_pairing = RopePairing::kInterleaved;
  int32_t no_rope_interval = 0;  // ModelConfig::no_rope_interval
  bool has_multipliers = false;  // reads the four scales of ModelConfig
  bool is_gemma = false;         // scaled embeddings, GELU, norms behind sublayers, local layers
  bool has_experts = false;      // may be a mixture of experts
  bool needs_experts = false;    // is always one
  bool has_shared_expert = false;
  bool normalize_experts = false;  // ModelConfig::normalize_experts
  bool has_caps = false;           // reads the two soft-caps
  int32_t window = 0;              // where the file states none; below 0: it has to
  int32_t full_interval = 0;       // ModelConfig::full_interval, where the file states none
  double local_theta = 0;  // RoPE's base in local layers, where the file states none; 0: as all
  int32_t wide_head_layers = 0;  // with so many layers scores are divided by sqrt(dim / heads)
  bool has_window = false;       // reads attention.sliding_window
  bool fused = false;            // Q, K and V are one matrix, gate and up another
  bool needs_qkv_bias = false;   // a file without these tensors is incomplete
  bool needs_qk_norm = false;
  std::string_view source;  // the paper or model card that the function is taken from
};

std::span<const Architecture> Architectures();

// nullptr when there is none of that name.
const Architecture* FindArchitecture(std::string_view name);

// "llama, qwen2, ...", for messages.
std::string ArchitectureNames();

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_ARCHITECTURES_H_
