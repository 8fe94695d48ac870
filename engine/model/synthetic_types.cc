#include "engine/synthetic_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/model/architectures.h"

namespace lockstep {
namespace {

constexpr int32_t kHeadBlock = 32;  // elements: a block of every quantized row and every small type
constexpr uint32_t kTypeIdEnd = 64;

// The shapes of a small family. 64 columns are two blocks, so that sums are longer than one.
constexpr int32_t kSmallDim = 64;
constexpr int32_t kSmallFfnDim = 96;
constexpr int32_t kSmallVocab = 272;  // 256 bytes and the control tokens, in whole groups of rows
constexpr int32_t kSmallContext = 64;

int32_t RoundUp(int32_t value, int32_t to) { return (value + to - 1) / to * to; }

// What sets one pipeline apart from another.
auto FeaturesOf(const SyntheticSpec& spec) {
  return std::tuple(spec.architecture, spec.qkv_bias, spec.qk_norm, spec.rope_linear != 1.0f,
                    spec.rope_factors, spec.multipliers, spec.window > 0, spec.experts > 0,
                    spec.shared_dim > 0, spec.attention_cap != 0, spec.logit_cap != 0,
                    spec.yarn != 1.0f, spec.long_rope);
}

// Two layers, or as many as one of each kind needs.
int32_t LayersOf(const SyntheticSpec& spec) {
  const Architecture* architecture = FindArchitecture(spec.architecture);
  LS_CHECK(architecture != nullptr, "preset {} of no known architecture", spec.name);
  return std::max({2, architecture->full_interval, architecture->no_rope_interval});
}

}  // namespace

std::vector<GgmlType> WeightTypes() {
  std::vector<GgmlType> types;
  for (uint32_t id = 0; id < kTypeIdEnd; ++id) {
    if (TraitsOf(static_cast<GgmlType>(id))) types.push_back(static_cast<GgmlType>(id));
  }
  return types;
}

GgmlType ParseWeightType(std::string_view where, std::string_view name) {
  std::vector<std::string_view> names;
  for (const GgmlType type : WeightTypes()) {
    names.push_back(TraitsOf(type)->name);
    if (names.back() == name) return type;
  }
  throw Error({std::string(where), fmt::format("there is no weight type '{}'", name),
               fmt::format("choose one of {}", fmt::join(names, ", "))});
}

SyntheticSpec InWeightType(SyntheticSpec spec, GgmlType type) {
  const auto traits = TraitsOf(type);
  LS_CHECK(traits.has_value(), "weight type {}", static_cast<uint32_t>(type));
  const auto block = static_cast<int32_t>(traits->block_elements);
  spec.weight_type = type;
  spec.wide_type.reset();
  spec.dim = RoundUp(spec.dim, block);
  spec.ffn_dim = RoundUp(spec.ffn_dim, block);
  spec.expert_dim = RoundUp(spec.expert_dim, block);
  spec.shared_dim = RoundUp(spec.shared_dim, block);
  if (block > 1) spec.head_dim = RoundUp(spec.head_dim, kHeadBlock);
  while (spec.num_heads * spec.head_dim % block != 0) spec.num_heads += spec.num_kv_heads;
  return spec;
}

SyntheticSpec FamilyOf(const SyntheticSpec& preset) {
  SyntheticSpec spec = preset;
  spec.num_layers = LayersOf(spec);
  spec.dim = kSmallDim;
  spec.ffn_dim = kSmallFfnDim;
  spec.expert_dim = std::min(spec.expert_dim, kSmallDim);
  spec.shared_dim = std::min(spec.shared_dim, kSmallDim);
  // Heads that every row type can store; groups of at most three, which is no power of two.
  spec.head_dim = kHeadBlock;
  spec.rope_dim = std::min(spec.rope_dim, spec.head_dim);
  const int32_t groups = std::min(spec.num_heads / spec.num_kv_heads, 3);
  spec.num_kv_heads = std::min(spec.num_kv_heads, 2);
  spec.num_heads = groups * spec.num_kv_heads;
  spec.vocab_size = kSmallVocab;
  spec.context_length = kSmallContext;
  spec.window = std::min(spec.window, kSmallContext);
  return spec;
}

std::vector<SyntheticSpec> SyntheticFamilies() {
  std::vector<SyntheticSpec> families;
  for (const SyntheticSpec& preset : SyntheticPresets()) {
    if (!preset.name.starts_with("tiny-")) continue;
    const bool is_there = std::ranges::any_of(families, [&](const SyntheticSpec& family) {
      return FeaturesOf(family) == FeaturesOf(preset);
    });
    if (!is_there) families.push_back(FamilyOf(preset));
  }
  return families;
}

}  // namespace lockstep
