#include "engine/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "caches/error.h"
#include "engine/model/config_reader.h"

namespace lockstep {
namespace {

// Bounds that keep every later product inside 64 bits and every table small. The largest public
// models are two orders of magnitude below them.
constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr int64_t kMaxLayers = int64_t{1} << 16;
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxExperts = int64_t{1} << 12;

// The keys that ReadModelConfig reads; a tensor's shape or a range check settles their meaning.
constexpr std::array<std::string_view, 10> kReadKeys = {
    "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.layer_norm_rms_epsilon",
    "block_count",          "context_length",
    "embedding_length",     "feed_forward_length",
    "rope.dimension_count", "rope.freq_base"};

// Read besides where layers are of two kinds.
constexpr std::array<std::string_view, 3> kLocalKeys = {
    "attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"};

// Read besides with experts.
constexpr std::array<std::string_view, 4> kExpertKeys = {
    "expert_count", "expert_feed_forward_length", "expert_shared_feed_forward_length",
    "expert_used_count"};

constexpr std::array<std::string_view, 2> kCapKeys = {"attn_logit_softcapping",
                                                      "final_logit_softcapping"};

// Read besides for architectures with multipliers.
constexpr std::array<std::string_view, 4> kMultiplierKeys = {"attention.scale", "embedding_scale",
                                                             "logit_scale", "residual_scale"};

}  // namespace

void RefuseKey(const GgufFile& file, std::string_view key, std::string what, std::string remedy) {
  throw Error(
      {fmt::format("{}: metadata key '{}'", file.path(), key), std::move(what), std::move(remedy)});
}

bool ConfigReader::IsRead(std::string_view name) const {
  const auto is_in = [&](const auto& keys) { return std::ranges::count(keys, name) > 0; };
  return is_in(kReadKeys) || (architecture_->has_multipliers && is_in(kMultiplierKeys)) ||
         (architecture_->has_window && name == "attention.sliding_window") ||
         is_in(scaling_keys_) || (architecture_->full_interval != 0 && is_in(kLocalKeys)) ||
         (architecture_->has_caps && is_in(kCapKeys)) ||
         (config_.num_experts > 0 && is_in(kExpertKeys));
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
  if (name == "final_logit_softcapping") return float_is(0.0);
  if (name == "attention.causal") return file_.FindBool(key) == true;
  if (name == "rope.scaling.type") return true;  // "none": others were read or refused
  if (name == "rope.scaling.factor" || name == "rope.scale_linear") return float_is(1.0);
  if (name == "rope.scaling.finetuned") {  // Granite's switch for RoPE; of no effect elsewhere
    return !architecture_->has_multipliers || file_.FindBool(key) == true;
  }
  if (name == "expert_gating_func") return int_is(1);  // softmax
  if (name == "expert_weights_norm") return file_.FindBool(key) == config_.normalize_experts;
  if (name == "expert_weights_scale") return float_is(0.0) || float_is(1.0);
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
    Refuse(key, "its value asks for a function that is not computed here",
           "use a model without it: of RoPE scalings linear, YaRN and factors of pairs are "
           "computed");
  }
  if (file_.FindInt("split.count", 0, std::numeric_limits<int64_t>::max()).value_or(0) > 1) {
    Refuse("split.count", "the file is one part of a split model", "merge the parts first");
  }
}

void ConfigReader::ReadHeads() {
  config_.num_heads = RequireCount("attention.head_count", kMaxHeads);
  config_.num_kv_heads =
      FindCount("attention.head_count_kv", 1, config_.num_heads, config_.num_heads);
  if (config_.num_heads % config_.num_kv_heads != 0) {
    Refuse(Key("attention.head_count_kv"),
           fmt::format("{} query heads cannot share {} KV heads evenly", config_.num_heads,
                       config_.num_kv_heads),
           "the head counts must divide");
  }
  const std::string key_length = Key("attention.key_length");
  if (!file_.FindInt(key_length, 1, kMaxDim) && config_.dim % config_.num_heads != 0) {
    Refuse(key_length,
           fmt::format("it is absent and embedding_length {} is no multiple of {} heads",
                       config_.dim, config_.num_heads),
           "state the head dimension");
  }
  config_.head_dim = FindCount("attention.key_length", 1, kMaxDim, config_.dim / config_.num_heads);
  if (int64_t{config_.num_heads} * config_.head_dim > kMaxDim) {
    Refuse(key_length,
           fmt::format("{} heads of {} elements are too wide", config_.num_heads, config_.head_dim),
           "");
  }
  if (config_.head_dim % 2 != 0) {
    Refuse(key_length,
           fmt::format("head dimension {} is odd, so RoPE cannot pair it", config_.head_dim), "");
  }
}

double ConfigReader::FindPositive(std::string_view name, double otherwise) const {
  const double value = file_.FindFloat(Key(name)).value_or(otherwise);
  const auto rounded = static_cast<float>(value);
  if (!(rounded > 0.0f && rounded <= std::numeric_limits<float>::max())) {
    Refuse(Key(name), fmt::format("{} is no positive binary32 number", value), "");
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

// What sets Gemma apart, beside its tensors. The scale of scores is a fact of the size, which no
// key states.
void ConfigReader::ReadGemma() {
  const auto root = [](int32_t x) { return std::sqrt(static_cast<float>(x)); };
  config_.activation = Activation::kGelu;
  config_.embedding_scale = root(config_.dim);
  if (config_.num_layers == architecture_->wide_head_layers) {
    config_.attention_scale = 1.0f / root(config_.dim / config_.num_heads);
  }
  if (architecture_->has_caps) {
    config_.attention_cap = static_cast<float>(FindPositive("attn_logit_softcapping", 50.0));
    config_.logit_cap = static_cast<float>(FindPositive("final_logit_softcapping", 30.0));
  }
}

// Layers of two kinds: local ones, whose RoPE is not scaled where it has a base of its own, and
// global ones.
void ConfigReader::ReadLocalLayers() {
  if (architecture_->full_interval == 0) return;
  config_.full_interval =
      FindCount("attention.sliding_window_pattern", 1, kMaxLayers, architecture_->full_interval);
  const std::string_view name = "rope.freq_base_swa";
  if (architecture_->local_theta == 0 && !file_.FindFloat(Key(name))) return;
  const double otherwise =
      architecture_->local_theta != 0 ? architecture_->local_theta : config_.rope.theta;
  config_.local_rope = config_.rope;
  config_.local_rope->theta = FindInRange(name, 1.0, 1e15, otherwise);
  CheckYarn(*config_.local_rope, name);
  if (architecture_->local_theta != 0) {
    config_.local_rope->linear = 1;
    config_.local_rope->yarn.reset();
  }
}

void ConfigReader::ReadExperts() {
  if (!architecture_->has_experts) return;
  config_.num_experts = architecture_->needs_experts ? RequireCount("expert_count", kMaxExperts)
                                                     : FindCount("expert_count", 0, kMaxExperts, 0);
  if (config_.num_experts == 0) return;
  config_.experts_used = RequireCount("expert_used_count", config_.num_experts);
  config_.expert_dim = FindCount("expert_feed_forward_length", 1, kMaxDim, config_.ffn_dim);
  config_.normalize_experts = architecture_->normalize_experts;
  if (int64_t{config_.experts_used} * config_.expert_dim > kMaxDim) {
    Refuse(Key("expert_feed_forward_length"),
           fmt::format("{} experts of {} elements are too wide", config_.experts_used,
                       config_.expert_dim),
           "");
  }
  if (architecture_->has_shared_expert) {
    config_.shared_dim = RequireCount("expert_shared_feed_forward_length", kMaxDim);
  } else if (FindCount("expert_shared_feed_forward_length", 0, kMaxDim, 0) != 0) {
    Refuse(Key("expert_shared_feed_forward_length"),
           fmt::format("architecture '{}' has no shared expert here", config_.architecture), "");
  }
}

// 0 is "none" in files of some converters.
void ConfigReader::ReadWindow() {
  if (!architecture_->has_window) return;
  const std::string_view name = "attention.sliding_window";
  config_.window = architecture_->window < 0
                       ? RequireCount(name, kMaxContext)
                       : FindCount(name, 0, kMaxContext, architecture_->window);
  // As long as the context, it hides nothing.
  if (config_.window >= config_.context_length) config_.window = 0;
}

namespace {

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
    RefuseKey(file, "tokenizer.ggml.tokens",
              fmt::format("{} tokens, but token_embd.weight has {} rows", tokens->size(), size),
              "use a file whose vocabulary is the model's");
  }
  return static_cast<int32_t>(size);
}

}  // namespace

ModelConfig ConfigReader::Read() {
  config_.architecture = file_.RequireString("general.architecture");
  architecture_ = FindArchitecture(config_.architecture);
  if (architecture_ == nullptr) {
    Refuse("general.architecture",
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
  if (architecture_->is_gemma) ReadGemma();
  ReadLocalLayers();
  ReadExperts();
  ReadWindow();
  const std::string eps_key = Key("attention.layer_norm_rms_epsilon");
  const double eps = file_.RequireFloat(eps_key);
  config_.rms_eps = static_cast<float>(eps);
  if (!(eps >= 0.0 && eps <= 1.0)) {
    Refuse(eps_key, fmt::format("{} is outside [0, 1]", eps), "");
  }
  config_.vocab_size = ReadVocabSize(file_);
  RefuseUnknownKeys();
  return std::move(config_);
}

ModelConfig ReadModelConfig(const GgufFile& file) { return ConfigReader(file).Read(); }

}  // namespace lockstep
