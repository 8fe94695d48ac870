#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "caches/error.h"
#include "reports/peer/gguf_copy.h"
#include "reports/peer_plants.h"

namespace lockstep {
namespace {

using internal::GgufCopy;
using internal::TensorCopy;

constexpr std::array kPlants = {
    PeerPlant{PeerPlantKind::kRopePairing, "rope-pairing",
              "RoPE turns the elements of a head in pairs of the other kind"},
    PeerPlant{PeerPlantKind::kRopeBase, "rope-base", "RoPE's base is one percent too large"},
    PeerPlant{PeerPlantKind::kRopeScaling, "rope-scaling", "RoPE's frequencies are not scaled"},
    PeerPlant{PeerPlantKind::kPosition, "position",
              "from the middle of the text on, positions are one too large"},
    PeerPlant{PeerPlantKind::kNoBias, "no-bias", "biases are left out"},
    PeerPlant{PeerPlantKind::kNoQkNorm, "no-qk-norm", "the weights of QK-norm are left out"},
    PeerPlant{PeerPlantKind::kHeads, "heads", "query heads read the next KV head"},
    PeerPlant{PeerPlantKind::kNoMultipliers, "no-multipliers", "multipliers are left out"},
    PeerPlant{PeerPlantKind::kNormEps, "norm-eps", "the epsilon of RMSNorm is ten times too large"},
    PeerPlant{PeerPlantKind::kWindow, "window", "the sliding window is one position too wide"},
    PeerPlant{PeerPlantKind::kSoftCaps, "soft-caps", "soft-caps are left out"},
    PeerPlant{PeerPlantKind::kExperts, "experts", "one expert fewer is asked"},
    PeerPlant{PeerPlantKind::kStoredRows, "stored-rows",
              "a matmul on the weights as stored takes each output from the next row"},
};

bool EndsWithAny(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

// Rows of a matrix, elements of a vector.
size_t RowBytes(const TensorCopy& tensor) {
  return tensor.shape.size() == 1 ? sizeof(float) : tensor.row_bytes();
}

// Row r of each group of `group` rows becomes what row from(r) was. False when it is no group.
bool Permute(TensorCopy* tensor, size_t group, const std::function<size_t(size_t)>& from) {
  const size_t row = RowBytes(*tensor);
  const size_t rows = tensor->data.size() / row;
  if (group < 2 || rows % group != 0) return false;
  const std::vector<std::byte> old = tensor->data;
  for (size_t r = 0; r < rows; ++r) {
    const size_t source = r / group * group + from(r % group);
    std::memcpy(tensor->data.data() + r * row, old.data() + source * row, row);
  }
  return true;
}

bool FillFloats(GgufCopy* copy, std::initializer_list<std::string_view> ends, float value) {
  bool found = false;
  for (TensorCopy& tensor : copy->tensors) {
    if (tensor.type != GgmlType::kF32 || !EndsWithAny(tensor.name, ends)) continue;
    found = true;
    for (size_t at = 0; at < tensor.data.size(); at += sizeof(float)) {
      std::memcpy(tensor.data.data() + at, &value, sizeof(float));
    }
  }
  return found;
}

class Planter {
 public:
  Planter(const GgufFile& file, GgufCopy* copy)
      : file_(file), copy_(*copy), family_(file.RequireString("general.architecture") + ".") {}

  // False when there is nothing to change.
  bool Plant(PeerPlantKind kind) {
    switch (kind) {
      case PeerPlantKind::kRopePairing:
        return PairOtherwise();
      case PeerPlantKind::kRopeBase:
        return Scale("rope.freq_base", 10000, 1.01);
      case PeerPlantKind::kRopeScaling:
        return EraseRopeScaling();
      case PeerPlantKind::kPosition:
        return true;
      case PeerPlantKind::kNoBias:
        return FillFloats(&copy_, {".bias"}, 0);
      case PeerPlantKind::kNoQkNorm:
        return FillFloats(&copy_, {"attn_q_norm.weight", "attn_k_norm.weight"}, 1);
      case PeerPlantKind::kHeads:
        return ShiftHeads();
      case PeerPlantKind::kNoMultipliers:
        return Erase({"embedding_scale", "residual_scale", "logit_scale", "attention.scale"});
      case PeerPlantKind::kNormEps:
        return Scale("attention.layer_norm_rms_epsilon", 1e-5, 10);
      case PeerPlantKind::kWindow:
        return Add("attention.sliding_window", 1);
      case PeerPlantKind::kSoftCaps:
        return Erase({"attn_logit_softcapping", "final_logit_softcapping"});
      case PeerPlantKind::kExperts:
        return Add("expert_used_count", -1);
      case PeerPlantKind::kStoredRows:
        return ShiftStoredRows();
    }
    return false;
  }

 private:
  int64_t HeadDim() const {
    const int64_t heads = file_.FindInt(family_ + "attention.head_count", 1, 1 << 20).value_or(1);
    const int64_t dim = file_.FindInt(family_ + "embedding_length", 1, 1 << 30).value_or(heads);
    return file_.FindInt(family_ + "attention.key_length", 1, 1 << 20).value_or(dim / heads);
  }

  bool PairOtherwise() {
    const auto head = static_cast<size_t>(HeadDim());
    bool found = false;
    for (TensorCopy& tensor : copy_.tensors) {
      if (!EndsWithAny(tensor.name, {"attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias",
                                     "attn_q_norm.weight", "attn_k_norm.weight"})) {
        continue;
      }
      found |= Permute(&tensor, head, [&](size_t r) { return r / 2 + (r % 2) * (head / 2); });
    }
    return found;
  }

  bool ShiftHeads() {
    const auto head = static_cast<size_t>(HeadDim());
    bool found = false;
    for (TensorCopy& tensor : copy_.tensors) {
      if (!EndsWithAny(tensor.name,
                       {"attn_k.weight", "attn_v.weight", "attn_k.bias", "attn_v.bias"})) {
        continue;
      }
      const size_t rows = tensor.data.size() / RowBytes(tensor);
      if (rows <= head) return false;  // one KV head: there is no other
      found |= Permute(&tensor, rows, [&](size_t r) { return (r + head) % rows; });
    }
    return found;
  }

  bool ShiftStoredRows() {
    TensorCopy* matrix = copy_.FindTensor("blk.0.ffn_down.weight");
    if (matrix == nullptr) matrix = copy_.FindTensor("blk.0.ffn_down_exps.weight");
    if (matrix == nullptr || matrix->type == GgmlType::kF32) return false;
    const auto rows = static_cast<size_t>(matrix->shape[1]);
    return Permute(matrix, rows, [&](size_t r) { return (r + 1) % rows; });
  }

  bool Add(const std::string& key, int64_t more) {
    const auto value = file_.FindInt(family_ + key, 0, 1 << 30);
    if (!value || *value + more < 1) return false;
    copy_.metadata[family_ + key] = static_cast<uint64_t>(*value + more);
    return true;
  }

  bool Scale(const std::string& key, double otherwise, double factor) {
    const double value = file_.FindFloat(family_ + key).value_or(otherwise);
    copy_.metadata[family_ + key] = double{static_cast<float>(value * factor)};
    return true;
  }

  bool Erase(std::initializer_list<std::string_view> keys) {
    return std::erase_if(copy_.metadata, [&](const auto& entry) {
             return std::ranges::any_of(keys, [&](std::string_view key) {
               return entry.first.starts_with(family_ + std::string(key));
             });
           }) > 0;
  }

  bool EraseRopeScaling() {
    const bool found = Erase({"rope.scaling."});
    const size_t factors = std::erase_if(
        copy_.tensors, [](const TensorCopy& tensor) { return tensor.name.starts_with("rope_f"); });
    return found || factors > 0;
  }

  const GgufFile& file_;
  GgufCopy& copy_;
  std::string family_;
};

}  // namespace

std::span<const PeerPlant> PeerPlants() { return kPlants; }

const PeerPlant& ParsePeerPlant(std::string_view name) {
  std::string names;
  for (const PeerPlant& plant : kPlants) {
    if (plant.name == name) return plant;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", plant.name);
  }
  throw Error({"--plant", fmt::format("there is no fault '{}'", name), "choose one of " + names});
}

std::shared_ptr<const GgufFile> PlantedModel(const std::shared_ptr<const GgufFile>& file,
                                             PeerPlantKind kind) {
  if (kind == PeerPlantKind::kPosition) return file;
  GgufCopy copy(*file);
  if (!Planter(*file, &copy).Plant(kind)) return nullptr;
  return GgufFile::FromBytes(copy.Image(), file->path());
}

}  // namespace lockstep
