#include "engine/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "caches/error.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kAdapterTargets> kTensorNames = {
    "attn_q.weight",   "attn_k.weight", "attn_v.weight",  "attn_output.weight",
    "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"};

constexpr std::string_view kEndings[] = {".lora_a", ".lora_b"};

// What `target` of `layer` is called in an adapter's file, without ".lora_a".
std::string PairName(int32_t layer, AdapterTarget target) {
  return fmt::format("blk.{}.{}", layer, AdapterTensorName(target));
}

void RequireText(const GgufFile& file, std::string_view key, std::string_view wanted,
                 std::string_view remedy) {
  const std::string& value = file.RequireString(key);
  if (value == wanted) return;
  throw Error({fmt::format("{}: metadata key '{}'", file.path(), key),
               fmt::format("it is '{}' and not '{}'", value, wanted), std::string(remedy)});
}

PackedMatrix Packed(const GgufTensor& tensor, const MatrixShape& shape) {
  if (!IsQuantized(tensor.type)) {
    return PackedMatrix(tensor.type, shape.outputs, shape.inputs, tensor.data);
  }
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  DecodeWeights(tensor.type, tensor.data, values);
  return PackedMatrix(GgmlType::kF32, shape.outputs, shape.inputs,
                      std::as_bytes(std::span(values)));
}

// The rows of lora_a, which the file alone says.
int32_t RankOf(const GgufFile& file, const GgufTensor& a) {
  if (a.shape.size() == 2 && a.shape[1] <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(a.shape[1]);
  }
  throw Error({fmt::format("{}: tensor '{}'", file.path(), a.name), "it is no matrix",
               "the adapter is damaged"});
}

// `a_name` and its other half, or nothing when neither is there.
std::optional<LoraPair> ReadPair(const GgufFile& file, const std::string& name,
                                 const MatrixShape& shape, float alpha) {
  const GgufTensor* halves[2];
  for (size_t i = 0; i < 2; ++i) halves[i] = file.FindTensor(name + std::string(kEndings[i]));
  if (halves[0] == nullptr && halves[1] == nullptr) return {};
  for (size_t i = 0; i < 2; ++i) {
    if (halves[i] != nullptr) continue;
    throw Error({fmt::format("{}: tensor '{}{}'", file.path(), name, kEndings[i]),
                 "it is missing, and the other half of its pair is there",
                 "the adapter is incomplete"});
  }
  const int32_t rank = RankOf(file, *halves[0]);
  const MatrixShape a = {rank, shape.inputs}, b = {shape.outputs, rank};
  const auto take = [&](size_t half, const MatrixShape& wanted) {
    const int64_t in_file[] = {wanted.inputs, wanted.outputs};
    return Packed(file.RequireTensor(halves[half]->name, in_file), wanted);
  };
  return LoraPair{.a = take(0, a),
                  .b = take(1, b),
                  .scale = alpha == 0.0f ? 1.0f : alpha / static_cast<float>(rank)};
}

// A tensor that nobody took changes something that stays as it is here.
void RefuseOthers(const GgufFile& file, const std::set<std::string>& taken) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (taken.contains(tensor.name)) continue;
    throw Error({fmt::format("{}: tensor '{}'", file.path(), tensor.name),
                 "it changes no matrix of attention or feed-forward of this model",
                 "use an adapter of attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up and "
                 "ffn_down alone"});
  }
}

}  // namespace

std::string_view AdapterTensorName(AdapterTarget target) {
  return kTensorNames[static_cast<size_t>(target)];
}

bool HasAdapterTarget(const ModelConfig& config, AdapterTarget target) {
  return config.num_experts == 0 || target < AdapterTarget::kGate;
}

MatrixShape AdapterShape(const ModelConfig& config, AdapterTarget target) {
  switch (target) {
    case AdapterTarget::kQuery:
      return {config.q_dim(), config.dim};
    case AdapterTarget::kKey:
    case AdapterTarget::kValue:
      return {config.kv_dim(), config.dim};
    case AdapterTarget::kAttnOut:
      return {config.dim, config.q_dim()};
    case AdapterTarget::kGate:
    case AdapterTarget::kUp:
      return {config.ffn_dim, config.dim};
    case AdapterTarget::kDown:
      break;
  }
  return {config.dim, config.ffn_dim};
}

std::shared_ptr<const LoraAdapter> LoraAdapter::Load(const GgufFile& file,
                                                     const ModelConfig& config) {
  RequireText(file, "general.type", "adapter", "give a LoRA adapter as GGUF, not a model");
  RequireText(file, "adapter.type", "lora", "adapters of other kinds are not computed here");
  RequireText(file, "general.architecture", config.architecture,
              "use an adapter that was trained on this model");
  const auto alpha = static_cast<float>(file.RequireFloat("adapter.lora.alpha"));
  std::set<std::string> taken;
  auto adapter = std::make_shared<LoraAdapter>();
  adapter->name_ = file.FindString("general.name").value_or(file.path());
  adapter->digest_ = DigestOfBytes(file.bytes());
  adapter->shape_ = ShapeOf(config);
  adapter->layers_.resize(static_cast<size_t>(config.num_layers));
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (size_t i = 0; i < kAdapterTargets; ++i) {
      const auto target = static_cast<AdapterTarget>(i);
      if (!HasAdapterTarget(config, target)) continue;
      auto& pair = adapter->layers_[static_cast<size_t>(layer)][i];
      const std::string name = PairName(layer, target);
      pair = ReadPair(file, name, AdapterShape(config, target), alpha);
      if (!pair) continue;
      for (const std::string_view ending : kEndings) taken.insert(name + std::string(ending));
      adapter->max_rank_ = std::max(adapter->max_rank_, pair->a.rows());
      ++adapter->pair_count_;
    }
  }
  RefuseOthers(file, taken);
  if (adapter->pair_count_ == 0) {
    throw Error({file.path(), "it changes no matrix", "the adapter is empty"});
  }
  return adapter;
}

}  // namespace lockstep
