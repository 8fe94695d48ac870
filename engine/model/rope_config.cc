// What the metadata of a model says about RoPE.
#include <fmt/format.h>

#include <array>

#include "engine/model/config_reader.h"

namespace lockstep {
namespace {

// Read where RoPE is scaled linearly; the original length is of no effect then.
constexpr std::array<std::string_view, 4> kLinearKeys = {"rope.scale_linear", "rope.scaling.factor",
                                                         "rope.scaling.original_context_length",
                                                         "rope.scaling.type"};

// Read with YaRN, and with LongRoPE.
constexpr std::array<std::string_view, 6> kYarnKeys = {
    "rope.scaling.attn_factor",    "rope.scaling.factor",
    "rope.scaling.type",           "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow", "rope.scaling.original_context_length"};
constexpr std::array<std::string_view, 3> kLongRopeKeys = {
    "rope.scaling.attn_factor", "rope.scaling.original_context_length", "rope.scaling.type"};

}  // namespace

void ConfigReader::ReadRope() {
  RopeFrequencies& rope = config_.rope;
  rope.dim = FindCount("rope.dimension_count", 2, config_.head_dim, config_.head_dim);
  if (rope.dim % 2 != 0) {
    Refuse(Key("rope.dimension_count"),
           fmt::format("{} is odd, so RoPE cannot pair the dimensions", rope.dim), "");
  }
  // At least 1, so that no angle exceeds its position and CanonicalSinCos stays in its domain.
  rope.theta = file_.FindFloat(Key("rope.freq_base")).value_or(10000.0);
  if (!(rope.theta >= 1.0 && rope.theta <= 1e15)) {
    Refuse(Key("rope.freq_base"), fmt::format("{} is outside [1, 1e15]", rope.theta), "");
  }
  ReadScaling();
}

// Linear scaling is also meant where a factor stands without a type, and LongRoPE where its tensors
// do.
void ConfigReader::ReadScaling() {
  const std::string type_key = Key("rope.scaling.type");
  const auto type = file_.FindString(type_key);
  const bool old = file_.FindFloat(Key("rope.scale_linear")).has_value();  // of older files
  const std::string_view factor = old ? "rope.scale_linear" : "rope.scaling.factor";
  const bool long_rope = file_.FindTensor("rope_factors_long.weight") != nullptr;
  if (type ? *type == "linear" : !long_rope && file_.FindFloat(Key(factor)).has_value()) {
    ReadLinear(factor);
  } else if (type && *type == "yarn") {
    ReadYarn();
  } else if (type ? *type == "longrope" : long_rope) {
    ReadLongRope();
  } else if (type && (*type == "dynamic" || *type == "ntk")) {
    Refuse(type_key,
           fmt::format("'{}' NTK scaling changes the base as a text grows, and with it keys that a "
                       "cache holds already",
                       *type),
           "use a model with yarn, or one whose rope.freq_base is the base for the whole context");
  } else if (type && *type != "none") {
    Refuse(type_key, fmt::format("RoPE scaling '{}' is not computed here", *type),
           "use a model with linear scaling, with yarn, with longrope, with rope_freqs.weight, or "
           "with none");
  }
}

void ConfigReader::ReadLinear(std::string_view name) {
  scaling_keys_ = kLinearKeys;
  config_.rope.linear = FindInRange(name, 1.0, 1e6, {});
}

void ConfigReader::CheckYarn(const RopeFrequencies& rope, std::string_view base) const {
  if (!rope.yarn || rope.theta > 1.0) return;
  Refuse(Key(base), "with a base of 1 all pairs turn alike: YaRN has none to tell", "");
}

void ConfigReader::ReadYarn() {
  scaling_keys_ = kYarnKeys;
  RopeFrequencies& rope = config_.rope;
  rope.yarn = YarnScaling{.factor = FindInRange("rope.scaling.factor", 1.0, 1e6, {}),
                          .original = static_cast<double>(
                              RequireCount("rope.scaling.original_context_length", kMaxContext)),
                          .fast = FindInRange("rope.scaling.yarn_beta_fast", 1e-6, 1e6, 32.0),
                          .slow = FindInRange("rope.scaling.yarn_beta_slow", 1e-6, 1e6, 1.0)};
  rope.attention = FindInRange("rope.scaling.attn_factor", 1e-3, 1e3, 1.0);
  for (const char* tensor : {"rope_freqs.weight", "rope_factors_long.weight"}) {
    if (file_.FindTensor(tensor) == nullptr) continue;
    Refuse(Key("rope.scaling.type"), fmt::format("YaRN and tensor '{}' stand together", tensor),
           "use a model that has one of them");
  }
  CheckYarn(rope, "rope.freq_base");
}

// Which of the two tensors is meant depends on the context that the model is run with: here the
// file's own, whatever a sequence uses of it, so that no row depends on how long a sequence gets.
void ConfigReader::ReadLongRope() {
  scaling_keys_ = kLongRopeKeys;
  if (file_.FindTensor("rope_factors_long.weight") == nullptr) {
    Refuse(Key("rope.scaling.type"), "there is no tensor 'rope_factors_long.weight'",
           "the model is incomplete");
  }
  config_.rope.attention = FindInRange("rope.scaling.attn_factor", 1e-3, 1e3, 1.0);
}

// `otherwise`, or required without one.
double ConfigReader::FindInRange(std::string_view name, double low, double high,
                                 std::optional<double> otherwise) const {
  const std::string key = Key(name);
  const double value =
      otherwise ? file_.FindFloat(key).value_or(*otherwise) : file_.RequireFloat(key);
  if (!(value >= low && value <= high)) {
    Refuse(key, fmt::format("{} is outside [{:g}, {:g}]", value, low, high), "");
  }
  return value;
}

}  // namespace lockstep
