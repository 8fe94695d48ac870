#include "engine/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "caches/error.h"
#include "engine/model/architectures.h"

namespace lockstep {
namespace {

// Bounds that keep every later product inside 64 bits and every table small. The largest public
// models are two orders of magnitude below them.
constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr int64_t kMaxLayers = int64_t{1} << 16;
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxContext = int64_t{1} << 30;

// The keys that ReadModelConfig reads; a tensor's shape or a range check settles their meaning.
constexpr std::array<std::string_view, 10> kReadKeys = {
    "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.layer_norm_rms_epsilon",
    "block_count",          "context_length",
    "embedding_length",     "feed_forward_length",
    "rope.dimension_count", "rope.freq_base"};

// Read besides where RoPE is scaled linearly; the original length is of no effect then.
constexpr std::array<std::string_view, 4> kLinearKeys = {"rope.scale_linear", "rope.scaling.factor",
                                                         "rope.scaling.original_context_length",
                                                         "rope.scaling.type"};

// Read besides with YaRN, and with LongRoPE.
constexpr std::array<std::string_view, 6> kYarnKeys = {
    "rope.scaling.attn_factor",    "rope.scaling.factor",
    "rope.scaling.type",           "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow", "rope.scaling.original_context_length"};
constexpr std::array<std::string_view, 3> kLongRopeKeys = {
    "rope.scaling.attn_factor", "rope.scaling.original_context_length", "rope.scaling.type"};

// Read besides for architectures with multipliers.
constexpr std::array<std::string_view, 4> kMultiplierKeys = {"attention.scale", "embedding_scale",
                                                             "logit_scale", "residual_scale"};

[[noreturn]] void Refuse(const GgufFile& file, std::string_view key, std::string what,
                         std::string remedy) {
  throw Error(
      {fmt::format("{}: metadata key '{}'", file.path(), key), std::move(what), std::move(remedy)});
}

// One file's metadata below "<architecture>.".
class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  ModelConfig Read();

 private:
  std::string Key(std::string_view name) const {
    return fmt::format("{}.{}", config_.architecture, name);
  }

  int32_t RequireCount(std::string_view name, int64_t high) const {
    return static_cast<int32_t>(file_.RequireInt(Key(name), 1, high));
  }

  int32_t FindCount(std::string_view name, int64_t low, int64_t high, int32_t otherwise) const {
    const auto value = file_.FindInt(Key(name), low, high);
    return value ? static_cast<int32_t>(*value) : otherwise;
  }

  double FindInRange(std::string_view name, double low, double high,
                     std::optional<double> otherwise) const;

  // A finite number above 0, or `otherwise`.
  double FindPositive(std::string_view name, double otherwise) const;

  bool IsRead(std::string_view name) const;
  bool IsNeutral(std::string_view name) const;
  void ReadHeads();
  void ReadRope();
  void ReadScaling();
  void ReadLinear(std::string_view name);
  void ReadYarn();
  void ReadLongRope();
  void ReadMultipliers();
  void ReadWindow();
  void RefuseUnknownKeys() const;

  const GgufFile& file_;
  const Architecture* architecture_ = nullptr;
  std::span<const std::string_view> scaling_keys_;  // that the kind of RoPE scaling reads
  ModelConfig config_;
};

bool ConfigReader::IsRead(std::string_view name) const {
  const auto is_in = [&](const auto& keys) { return std::ranges::count(keys, name) > 0; };
  return is_in(kReadKeys) || (architecture_->has_multipliers && is_in(kMultiplierKeys)) ||
         (architecture_->has_window && name == "attention.sliding_window") || is_in(scaling_keys_);
}

// Keys that are harmless at one value, which is the one that means "not used". At any other value,
// and for every key that is unknown, the file asks for a function that is not computed here.
bool ConfigReader::IsNeutral(std::string_view name) const {
  const std::string key = Key(name);
  const auto int_is = [&](int64_t wanted) {
    return file_.FindInt(key, std::numeric_limits<int64_t>::min(),
                         std::numeric_limits<int64_t>::max()) == wanted;
  };
  const auto float_is = [&](double wanted) { return file_.FindFloat(key) == wanted; };
  if (name == "vocab_size") return int_is(config_.vocab_size);
  if (name == "attention.value_length") return int_is(config_.head_dim);
  if (name == "attention.sliding_window" || name == "expert_count" || name == "expert_used_count") {
    return int_is(0);
  }
  if (name == "attention.causal") return file_.FindBool(key) == true;
  if (name == "rope.scaling.type") return true;  // "none": others were read or refused
  if (name == "rope.scaling.factor" || name == "rope.scale_linear") return float_is(1.0);
  if (name == "rope.scaling.finetuned") {  // Granite's switch for RoPE; of no effect elsewhere
    return !architecture_->has_multipliers || file_.FindBool(key) == true;
  }
  if (name == "rope.scaling.yarn_ext_factor" || name == "rope.scaling.yarn_attn_factor") {
    return float_is(1.0);
  }
  if (name == "tensor_data_layout") return file_.FindString(key) == "Meta AI original pth";
  return false;
}

void ConfigReader::RefuseUnknownKeys() const {
  const std::string prefix = Key("");
  for (const auto& [key, value] : file_.metadata()) {
    if (!key.starts_with(prefix)) continue;
    const std::string_view name = std::string_view(key).substr(prefix.size());
    if (IsRead(name) || IsNeutral(name)) continue;
    Refuse(file_, key, "its value asks for a function that is not computed here",
           "use a model without it: of RoPE scalings linear, YaRN and factors of pairs are "
           "computed, experts are not");
  }
  if (file_.FindInt("split.count", 0, std::numeric_limits<int64_t>::max()).value_or(0) > 1) {
    Refuse(file_, "split.count", "the file is one part of a split model", "merge the parts first");
  }
}

void ConfigReader::ReadHeads() {
  config_.num_heads = RequireCount("attention.head_count", kMaxHeads);
  config_.num_kv_heads =
      FindCount("attention.head_count_kv", 1, config_.num_heads, config_.num_heads);
  if (config_.num_heads % config_.num_kv_heads != 0) {
    Refuse(file_, Key("attention.head_count_kv"),
           fmt::format("{} query heads cannot share {} KV heads evenly", config_.num_heads,
                       config_.num_kv_heads),
           "the head counts must divide");
  }
  const std::string key_length = Key("attention.key_length");
  if (!file_.FindInt(key_length, 1, kMaxDim) && config_.dim % config_.num_heads != 0) {
    Refuse(file_, key_length,
           fmt::format("it is absent and embedding_length {} is no multiple of {} heads",
                       config_.dim, config_.num_heads),
           "state the head dimension");
  }
  config_.head_dim = FindCount("attention.key_length", 1, kMaxDim, config_.dim / config_.num_heads);
  if (int64_t{config_.num_heads} * config_.head_dim > kMaxDim) {
    Refuse(file_, key_length,
           fmt::format("{} heads of {} elements are too wide", config_.num_heads, config_.head_dim),
           "");
  }
  if (config_.head_dim % 2 != 0) {
    Refuse(file_, key_length,
           fmt::format("head dimension {} is odd, so RoPE cannot pair it", config_.head_dim), "");
  }
}

double ConfigReader::FindPositive(std::string_view name, double otherwise) const {
  const double value = file_.FindFloat(Key(name)).value_or(otherwise);
  const auto rounded = static_cast<float>(value);
  if (!(rounded > 0.0f && rounded <= std::numeric_limits<float>::max())) {
    Refuse(file_, Key(name), fmt::format("{} is no positive binary32 number", value), "");
  }
  return value;
}

void ConfigReader::ReadRope() {
  RopeFrequencies& rope = config_.rope;
  rope.dim = FindCount("rope.dimension_count", 2, config_.head_dim, config_.head_dim);
  if (rope.dim % 2 != 0) {
    Refuse(file_, Key("rope.dimension_count"),
           fmt::format("{} is odd, so RoPE cannot pair the dimensions", rope.dim), "");
  }
  // At least 1, so that no angle exceeds its position and CanonicalSinCos stays in its domain.
  rope.theta = file_.FindFloat(Key("rope.freq_base")).value_or(10000.0);
  if (!(rope.theta >= 1.0 && rope.theta <= 1e15)) {
    Refuse(file_, Key("rope.freq_base"), fmt::format("{} is outside [1, 1e15]", rope.theta), "");
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
  } else if (type && *type != "none") {
    Refuse(file_, type_key, fmt::format("RoPE scaling '{}' is not computed here", *type),
           "use a model with linear scaling, with yarn, with longrope, with rope_freqs.weight, or "
           "with none");
  }
}

void ConfigReader::ReadLinear(std::string_view name) {
  scaling_keys_ = kLinearKeys;
  config_.rope.linear = FindInRange(name, 1.0, 1e6, {});
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
    Refuse(file_, Key("rope.scaling.type"),
           fmt::format("YaRN and tensor '{}' stand together", tensor),
           "use a model that has one of them");
  }
  if (rope.theta <= 1.0) {
    Refuse(file_, Key("rope.freq_base"),
           "with a base of 1 all pairs turn alike: YaRN has none to tell", "");
  }
}

// Which of the two tensors is meant depends on the context that the model is run with: here the
// file's own, whatever a sequence uses of it, so that no row depends on how long a sequence gets.
void ConfigReader::ReadLongRope() {
  scaling_keys_ = kLongRopeKeys;
  if (file_.FindTensor("rope_factors_long.weight") == nullptr) {
    Refuse(file_, Key("rope.scaling.type"), "there is no tensor 'rope_factors_long.weight'",
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
    Refuse(file_, key, fmt::format("{} is outside [{:g}, {:g}]", value, low, high), "");
  }
  return value;
}

void ConfigReader::ReadMultipliers() {
  if (!architecture_->has_multipliers) return;
  config_.embedding_scale = static_cast<float>(FindPositive("embedding_scale", 1.0));
  config_.residual_scale = static_cast<float>(FindPositive("residual_scale", 1.0));
  config_.logit_scale = 1.0f / static_cast<float>(FindPositive("logit_scale", 1.0));
  if (file_.FindFloat(Key("attention.scale"))) {
    config_.attention_scale = static_cast<float>(FindPositive("attention.scale", 1.0));
  }
}

// 0 is "none" in files of some converters.
void ConfigReader::ReadWindow() {
  if (architecture_->has_window) {
    config_.window = FindCount("attention.sliding_window", 0, kMaxContext, 0);
    // As long as the context, it hides nothing.
    if (config_.window >= config_.context_length) config_.window = 0;
  }
}

// The columns of the embedding table, which every other statement of it has to match.
int32_t ReadVocabSize(const GgufFile& file) {
  const GgufTensor* table = file.FindTensor("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2 || table->shape[1] < 1 ||
      table->shape[1] > std::numeric_limits<int32_t>::max()) {
    throw Error({fmt::format("{}: tensor 'token_embd.weight'", file.path()),
                 table == nullptr ? "it is missing" : "it is no matrix of one row for each token",
                 "the model is incomplete"});
  }
  const int64_t size = table->shape[1];
  const auto tokens = file.FindStrings("tokenizer.ggml.tokens");
  if (tokens && static_cast<int64_t>(tokens->size()) != size) {
    Refuse(file, "tokenizer.ggml.tokens",
           fmt::format("{} tokens, but token_embd.weight has {} rows", tokens->size(), size),
           "use a file whose vocabulary is the model's");
  }
  return static_cast<int32_t>(size);
}

ModelConfig ConfigReader::Read() {
  config_.architecture = file_.RequireString("general.architecture");
  architecture_ = FindArchitecture(config_.architecture);
  if (architecture_ == nullptr) {
    Refuse(file_, "general.architecture",
           fmt::format("architecture '{}' is not supported", config_.architecture),
           "use a model of one of: " + ArchitectureNames());
  }
  config_.rope_pairing = architecture_->rope_pairing;
  config_.no_rope_interval = architecture_->no_rope_interval;
  config_.name = file_.FindString("general.name").value_or(file_.path());
  config_.dim = RequireCount("embedding_length", kMaxDim);
  config_.ffn_dim = RequireCount("feed_forward_length", kMaxDim);
  config_.num_layers = RequireCount("block_count", kMaxLayers);
  config_.context_length = RequireCount("context_length", kMaxContext);
  ReadHeads();
  ReadRope();
  ReadMultipliers();
  ReadWindow();
  const std::string eps_key = Key("attention.layer_norm_rms_epsilon");
  const double eps = file_.RequireFloat(eps_key);
  config_.rms_eps = static_cast<float>(eps);
  if (!(eps >= 0.0 && eps <= 1.0)) {
    Refuse(file_, eps_key, fmt::format("{} is outside [0, 1]", eps), "");
  }
  config_.vocab_size = ReadVocabSize(file_);
  RefuseUnknownKeys();
  return std::move(config_);
}

}  // namespace

ModelConfig ReadModelConfig(const GgufFile& file) { return ConfigReader(file).Read(); }

}  // namespace lockstep
