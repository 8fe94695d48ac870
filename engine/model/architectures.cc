#include "engine/model/architectures.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array kArchitectures = {
    // Llama 1 to 3, SmolLM 1 and 2, Mistral (whose window: https://arxiv.org/abs/2310.06825),
    // Mixtral
    // (experts: https://arxiv.org/abs/2401.04088).
    Architecture{.name = "llama",
                 .has_experts = true,
                 .normalize_experts = true,
                 .has_window = true,
                 .source = "https://arxiv.org/abs/2407.21783"},
    Architecture{.name = "qwen2",
                 .rope_pairing = RopePairing::kHalves,
                 .needs_qkv_bias = true,
                 .source = "https://arxiv.org/abs/2407.10671"},
    Architecture{.name = "qwen3",
                 .rope_pairing = RopePairing::kHalves,
                 .needs_qk_norm = true,
                 .source = "https://arxiv.org/abs/2505.09388"},
    // The weights of a row's experts do not sum to 1: norm_topk_prob of
    // https://huggingface.co/Qwen/Qwen1.5-MoE-A2.7B.
    Architecture{.name = "qwen2moe",
                 .rope_pairing = RopePairing::kHalves,
                 .has_experts = true,
                 .needs_experts = true,
                 .has_shared_expert = true,
                 .needs_qkv_bias = true,
                 .source = "https://arxiv.org/abs/2407.10671"},
    Architecture{.name = "qwen3moe",
                 .rope_pairing = RopePairing::kHalves,
                 .has_experts = true,
                 .needs_experts = true,
                 .normalize_experts = true,
                 .needs_qk_norm = true,
                 .source = "https://arxiv.org/abs/2505.09388"},
    // Every fourth layer has no positions: https://arxiv.org/abs/2501.18795.
    Architecture{.name = "smollm3",
                 .no_rope_interval = 4,
                 .source = "https://huggingface.co/HuggingFaceTB/SmolLM3-3B"},
    Architecture{.name = "phi3",
                 .rope_pairing = RopePairing::kHalves,
                 .has_window = true,
                 .fused = true,
                 .source = "https://arxiv.org/abs/2404.14219"},
    // The size with 46 layers is the one whose scores are scaled by dim / heads, 144 and not 128:
    // query_pre_attn_scalar of https://huggingface.co/google/gemma-2-27b.
    Architecture{.name = "gemma2",
                 .rope_pairing = RopePairing::kHalves,
                 .is_gemma = true,
                 .has_caps = true,
                 .window = 4096,
                 .full_interval = 2,
                 .wide_head_layers = 46,
                 .has_window = true,
                 .source = "https://arxiv.org/abs/2408.00118"},
    // Five local layers to a global one. 62 layers: https://huggingface.co/google/gemma-3-27b-it.
    Architecture{.name = "gemma3",
                 .rope_pairing = RopePairing::kHalves,
                 .is_gemma = true,
                 .window = -1,
                 .full_interval = 6,
                 .local_theta = 10000.0,
                 .wide_head_layers = 62,
                 .has_window = true,
                 .needs_qk_norm = true,
                 .source = "https://arxiv.org/abs/2503.19786"},
    Architecture{.name = "granite",
                 .has_multipliers = true,
                 .source = "https://huggingface.co/ibm-granite/granite-3.0-2b-base"},
};

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  const auto found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == kArchitectures.end() ? nullptr : &*found;
}

std::string ArchitectureNames() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return names;
}

}  // namespace lockstep
