// The named synthetic models. Each small one is there for a shape that hides a kind of fault:
// numbers of heads that do not divide into powers of two, odd numbers of blocks, vectors that end
// inside a lane group, reductions longer than one segment.
#include <array>

#include "engine/synthetic.h"

namespace lockstep {

std::span<const SyntheticSpec> SyntheticPresets() {
  static const std::array<SyntheticSpec, 13> presets = {{
      // The geometry of SmolLM-135M (https://huggingface.co/HuggingFaceTB/SmolLM-135M).
      {.name = "smollm-135m",
       .dim = 576, .ffn_dim = 1536, .num_layers = 30, .num_heads = 9, .num_kv_heads = 3,
       .head_dim = 64, .vocab_size = 49152, .context_length = 2048,
       .weight_type = GgmlType::kQ8_0},
      // Three query heads share a KV head; 3, 5 and 9 blocks a row.
      {.name = "tiny-gqa-9x3-q8_0",
       .dim = 96, .ffn_dim = 160, .num_layers = 3, .num_heads = 9, .num_kv_heads = 3,
       .head_dim = 32, .vocab_size = 320, .context_length = 256,
       .weight_type = GgmlType::kQ8_0},
      // Seven query heads share a KV head; the smallest head.
      {.name = "tiny-gqa-28x4-q4_0",
       .dim = 64, .ffn_dim = 96, .num_layers = 4, .num_heads = 28, .num_kv_heads = 4,
       .head_dim = 8, .vocab_size = 320, .context_length = 256,
       .weight_type = GgmlType::kQ4_0},
      {.name = "tiny-mha-4x4-f32",
       .dim = 32, .ffn_dim = 48, .num_layers = 3, .num_heads = 4, .num_kv_heads = 4,
       .head_dim = 8, .vocab_size = 288, .context_length = 256,
       .weight_type = GgmlType::kF32},
      // Row counts and columns that are no multiple of 16.
      {.name = "tiny-ragged-3x1-f32",
       .dim = 44, .ffn_dim = 74, .num_layers = 3, .num_heads = 3, .num_kv_heads = 1,
       .head_dim = 10, .vocab_size = 301, .context_length = 192,
       .weight_type = GgmlType::kF32},
      {.name = "tiny-mqa-4x1-f16",
       .dim = 64, .ffn_dim = 112, .num_layers = 3, .num_heads = 4, .num_kv_heads = 1,
       .head_dim = 64, .vocab_size = 320, .context_length = 256,
       .weight_type = GgmlType::kF16},
      {.name = "tiny-headdim80-2x2-bf16",
       .dim = 80, .ffn_dim = 144, .num_layers = 3, .num_heads = 2, .num_kv_heads = 2,
       .head_dim = 80, .vocab_size = 320, .context_length = 256,
       .weight_type = GgmlType::kBF16},
      {.name = "tiny-headdim128-2x1-q8_0",
       .dim = 128, .ffn_dim = 224, .num_layers = 3, .num_heads = 2, .num_kv_heads = 1,
       .head_dim = 128, .vocab_size = 320, .context_length = 256,
       .weight_type = GgmlType::kQ8_0},
      // Reductions over more than one segment of 256, with a tail.
      {.name = "tiny-segments-6x2-q8_0",
       .dim = 288, .ffn_dim = 544, .num_layers = 3, .num_heads = 6, .num_kv_heads = 2,
       .head_dim = 64, .vocab_size = 384, .context_length = 640,
       .weight_type = GgmlType::kQ8_0},
      {.name = "tiny-segments-4x2-f32",
       .dim = 272, .ffn_dim = 528, .num_layers = 3, .num_heads = 4, .num_kv_heads = 2,
       .head_dim = 72, .vocab_size = 320, .context_length = 640,
       .weight_type = GgmlType::kF32},
      {.name = "tiny-untied-4x2-q8_0",
       .dim = 64, .ffn_dim = 128, .num_layers = 3, .num_heads = 4, .num_kv_heads = 2,
       .head_dim = 32, .vocab_size = 320, .context_length = 256,
       .weight_type = GgmlType::kQ8_0, .tied_head = false},
      {.name = "tiny-bias-6x2-f16",
       .dim = 64, .ffn_dim = 96, .num_layers = 3, .num_heads = 6, .num_kv_heads = 2,
       .head_dim = 16, .vocab_size = 320, .context_length = 256,
       .weight_type = GgmlType::kF16, .qkv_bias = true},
      {.name = "tiny-bias-qknorm-6x2-q8_0",
       .dim = 96, .ffn_dim = 160, .num_layers = 5, .num_heads = 6, .num_kv_heads = 2,
       .head_dim = 32, .vocab_size = 320, .context_length = 256,
       .weight_type = GgmlType::kQ8_0, .tied_head = false, .qkv_bias = true, .qk_norm = true},
  }};
  return presets;
}

}  // namespace lockstep
