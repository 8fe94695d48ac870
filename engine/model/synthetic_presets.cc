// The named synthetic models. Each small one is there for a shape that hides a kind of fault:
// numbers of heads that are no powers of two, odd numbers of blocks, rows that end inside a lane
// group, reductions longer than one segment.
#include <array>
#include <optional>

#include "engine/synthetic.h"

namespace lockstep {
namespace {

struct Row {
  std::string_view name;
  int32_t dim, ffn_dim, layers, heads, kv_heads, head_dim, vocab, context;
  GgmlType type;
  bool tied = true;
  bool bias = false;
  bool qk_norm = false;
  std::string_view architecture = "llama";
  float rope_linear = 1;
  bool rope_factors = false;
  bool multipliers = false;
  std::optional<GgmlType> wide_type = {};
};

// clang-format off
constexpr std::array kRows = {
    //  name                        dim   ffn  lay heads kv head_dim vocab context
    // The geometry of SmolLM-135M (https://huggingface.co/HuggingFaceTB/SmolLM-135M).
    Row{"smollm-135m",              576, 1536, 30,  9, 3,  64, 49152, 2048, GgmlType::kQ8_0},
    // Three query heads share a KV head; rows of 3, 5 and 9 blocks.
    Row{"tiny-gqa-9x3-q8_0",         96,  160,  3,  9, 3,  32,   320,  256, GgmlType::kQ8_0},
    // Seven query heads share a KV head; the smallest head.
    Row{"tiny-gqa-28x4-q4_0",        64,   96,  4, 28, 4,   8,   320,  256, GgmlType::kQ4_0},
    Row{"tiny-mha-4x4-f32",          32,   48,  3,  4, 4,   8,   288,  256, GgmlType::kF32},
    // Rows and columns that are no multiple of 16.
    Row{"tiny-ragged-3x1-f32",       44,   74,  3,  3, 1,  10,   301,  192, GgmlType::kF32},
    Row{"tiny-mqa-4x1-f16",          64,  112,  3,  4, 1,  64,   320,  256, GgmlType::kF16},
    Row{"tiny-headdim80-2x2-bf16",   80,  144,  3,  2, 2,  80,   320,  256, GgmlType::kBF16},
    Row{"tiny-headdim128-2x1-q8_0", 128,  224,  3,  2, 1, 128,   320,  256, GgmlType::kQ8_0},
    // Reductions over more than one segment of 256, with a tail.
    Row{"tiny-segments-6x2-q8_0",   288,  544,  3,  6, 2,  64,   384,  640, GgmlType::kQ8_0},
    Row{"tiny-segments-4x2-f32",    272,  528,  3,  4, 2,  72,   320,  640, GgmlType::kF32},
    Row{"tiny-untied-4x2-q8_0",      64,  128,  3,  4, 2,  32,   320,  256, GgmlType::kQ8_0,
        false},
    Row{"tiny-bias-6x2-f16",         64,   96,  3,  6, 2,  16,   320,  256, GgmlType::kF16,
        true, true},
    Row{"tiny-bias-qknorm-6x2-q8_0", 96,  160,  5,  6, 2,  32,   320,  256, GgmlType::kQ8_0,
        false, true, true},
    // Other families, each with all that sets it apart, at other shapes.
    Row{"tiny-qwen2-3x1-q8_0",       96,  160,  3,  3, 1,  32,   320,  256, GgmlType::kQ8_0,
        true, true, false, "qwen2"},
    Row{"tiny-qwen3-5x1-f16",        48,   80,  3,  5, 1,  24,   320,  256, GgmlType::kF16,
        true, false, true, "qwen3"},
    // The fourth layer is not rotated.
    Row{"tiny-smollm3-4x2-q4_0",     64,   96,  5,  4, 2,  32,   320,  256, GgmlType::kQ4_0,
        true, false, false, "smollm3"},
    Row{"tiny-granite-6x3-q8_0",     96,  128,  3,  6, 3,  16,   320,  256, GgmlType::kQ8_0,
        false, false, false, "granite", 1, false, true},
    // RoPE as Llama 3.1 stretches it, and as position interpolation does.
    Row{"tiny-llama3-4x2-bf16",      64,  112,  3,  4, 2,  16,   320,  256, GgmlType::kBF16,
        true, false, false, "llama", 1, true},
    Row{"tiny-linear-4x1-f32",       40,   64,  3,  4, 1,  20,   320,  256, GgmlType::kF32,
        true, false, false, "llama", 4},
    // The other weight types; those of 256 elements a block two in a model, in rows of one and two
    // blocks.
    Row{"tiny-gqa-4x2-q4_1",         64,   96,  3,  4, 2,  16,   320,  256, GgmlType::kQ4_1},
    Row{"tiny-gqa-3x1-q5_0",         96,  160,  3,  3, 1,  32,   320,  256, GgmlType::kQ5_0},
    Row{"tiny-gqa-4x2-q5_1",         64,  160,  3,  4, 2,  16,   320,  256, GgmlType::kQ5_1},
    Row{"tiny-gqa-2x1-iq4_nl",       96,   64,  3,  2, 1,  48,   320,  256, GgmlType::kIQ4_NL},
    Row{"tiny-gqa-8x1-q2_k+q3_k",   256,  256,  3,  8, 1,  32,   288,  256, GgmlType::kQ2_K,
        true, false, false, "llama", 1, false, false, GgmlType::kQ3_K},
    Row{"tiny-qwen2-8x2-q5_k+iq4_xs", 256, 256, 3,  8, 2,  32,   288,  256, GgmlType::kQ5_K,
        true, true, false, "qwen2", 1, false, false, GgmlType::kIQ4_XS},
    Row{"tiny-untied-4x2-q4_k+q6_k", 256, 512,  3,  4, 2,  64,   301,  256, GgmlType::kQ4_K,
        false, false, false, "llama", 1, false, false, GgmlType::kQ6_K},
};

// What few models have, beside a row of the table.
struct Family {
  Row row;
  std::string_view architecture = "llama";
  bool tied = true;
  bool bias = false;
  bool qk_norm = false;
  int32_t window = 0;
  int32_t rope_dim = 0;
  int32_t experts = 0, experts_used = 0, expert_dim = 0, shared_dim = 0;
  float rope_theta = 10000;
  float attention_cap = 0;
  float logit_cap = 0;
  float linear = 1;
  float yarn = 1;
  bool long_rope = false;
};

constexpr std::array kFamilies = {
    // A window shorter than a run of 16 positions, and than the queries that share a pass.
    Family{.row = {"tiny-mistral-6x2-q8_0", 96, 160, 3, 6, 2, 32, 320, 256, GgmlType::kQ8_0},
           .window = 5},
    // YaRN over pairs that it keeps, divides, and leaves between both.
    Family{.row = {"tiny-yarn-4x2-f16", 96, 112, 3, 4, 2, 24, 320, 256, GgmlType::kF16},
           .architecture = "qwen2", .bias = true, .yarn = 4},
    // Phi-3: fused matrices whose parts begin inside a group of 16 rows, two thirds of a head
    // rotated, a window that is longer than the context. Not by its name: where that is Phi-3's,
    // llama.cpp asks for tokens of its vocabulary.
    Family{.row = {"tiny-fused-4x1-f16", 96, 104, 3, 4, 1, 24, 320, 256, GgmlType::kF16},
           .architecture = "phi3", .tied = false, .window = 512, .rope_dim = 16,
           .long_rope = true},
    // Every second layer is local; caps low enough to bend what is capped; heads wider than the
    // embedding.
    Family{.row = {"tiny-gemma2-5x1-q8_0", 96, 128, 5, 5, 1, 32, 320, 256, GgmlType::kQ8_0},
           .architecture = "gemma2", .window = 6, .attention_cap = 5, .logit_cap = 7},
    // The sixth layer is global and has another RoPE, the only one that is scaled.
    Family{.row = {"tiny-gemma3-3x1-f16", 40, 72, 7, 3, 1, 24, 320, 256, GgmlType::kF16},
           .architecture = "gemma3", .qk_norm = true, .window = 5, .rope_theta = 1000000,
           .linear = 8},
    // Numbers of experts that are no powers of two; with and without a sum of 1, a shared expert.
    Family{.row = {"tiny-mixtral-4x2-q8_0", 64, 96, 3, 4, 2, 16, 320, 256, GgmlType::kQ8_0},
           .experts = 5, .experts_used = 2},
    Family{.row = {"tiny-qwen2moe-3x1-f16", 72, 128, 3, 3, 1, 24, 320, 256, GgmlType::kF16},
           .architecture = "qwen2moe", .tied = false, .bias = true, .experts = 6,
           .experts_used = 3, .expert_dim = 40, .shared_dim = 56},
    Family{.row = {"tiny-qwen3moe-4x1-q4_0", 96, 128, 3, 4, 1, 32, 320, 256, GgmlType::kQ4_0},
           .architecture = "qwen3moe", .qk_norm = true, .experts = 7, .experts_used = 3,
           .expert_dim = 64},
};
// clang-format on

SyntheticSpec MakeSpec(const Row& row) {
  SyntheticSpec spec;
  spec.name = row.name;
  spec.dim = row.dim;
  spec.ffn_dim = row.ffn_dim;
  spec.num_layers = row.layers;
  spec.num_heads = row.heads;
  spec.num_kv_heads = row.kv_heads;
  spec.head_dim = row.head_dim;
  spec.vocab_size = row.vocab;
  spec.context_length = row.context;
  spec.weight_type = row.type;
  spec.tied_head = row.tied;
  spec.qkv_bias = row.bias;
  spec.qk_norm = row.qk_norm;
  spec.architecture = row.architecture;
  spec.rope_linear = row.rope_linear;
  spec.rope_factors = row.rope_factors;
  spec.multipliers = row.multipliers;
  spec.wide_type = row.wide_type;
  return spec;
}

std::vector<SyntheticSpec> MakeSpecs() {
  std::vector<SyntheticSpec> specs;
  for (const Row& row : kRows) specs.push_back(MakeSpec(row));
  for (const Family& family : kFamilies) {
    SyntheticSpec& spec = specs.emplace_back(MakeSpec(family.row));
    spec.architecture = family.architecture;
    spec.tied_head = family.tied;
    spec.qkv_bias = family.bias;
    spec.qk_norm = family.qk_norm;
    spec.window = family.window;
    spec.rope_dim = family.rope_dim;
    spec.experts = family.experts;
    spec.experts_used = family.experts_used;
    spec.expert_dim = family.expert_dim;
    spec.shared_dim = family.shared_dim;
    spec.rope_theta = family.rope_theta;
    spec.attention_cap = family.attention_cap;
    spec.logit_cap = family.logit_cap;
    spec.rope_linear = family.linear;
    spec.yarn = family.yarn;
    spec.long_rope = family.long_rope;
  }
  return specs;
}

}  // namespace

std::span<const SyntheticSpec> SyntheticPresets() {
  static const std::vector<SyntheticSpec> specs = MakeSpecs();
  return specs;
}

}  // namespace lockstep
