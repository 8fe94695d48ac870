#include "engine/model/architectures.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array kArchitectures = {
    // Llama 1 to 3, SmolLM 1 and 2, Mistral (whose window: https://arxiv.org/abs/2310.06825).
    Architecture{.name = "llama", .has_window = true, .source = "https://arxiv.org/abs/2407.21783"},
    Architecture{.name = "qwen2",
                 .rope_pairing = RopePairing::kHalves,
                 .needs_qkv_bias = true,
                 .source = "https://arxiv.org/abs/2407.10671"},
    Architecture{.name = "qwen3",
                 .rope_pairing = RopePairing::kHalves,
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
