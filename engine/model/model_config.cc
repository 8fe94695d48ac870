#include "engine/model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "caches/error.h"

namespace lockstep {
namespace {

// Bounds that keep every later product inside 64 bits and every table small. The largest public
// models are two orders of magnitude below them.
constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr int64_t kMaxLayers = int64_t{1} << 16;
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxContext = int64_t{1} << 30;

constexpr std::string_view kPrefix = "llama.";

// The keys that ReadModelConfig reads; a tensor's shape or a range check settles their meaning.
constexpr std::array<std::string_view, 10> kReadKeys = {
    "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.layer_norm_rms_epsilon",
    "block_count",          "context_length",
    "embedding_length",     "feed_forward_length",
    "rope.dimension_count", "rope.freq_base"};

std::string Key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

[[noreturn]] void Refuse(const GgufFile& file, std::string_view key, std::string what,
                         std::string remedy) {
  throw Error(
      {fmt::format("{}: metadata key '{}'", file.path(), key), std::move(what), std::move(remedy)});
}

// Keys that are harmless at one value, which is the one that means "not used". At any other value,
// and for every key that is unknown, the file asks for a function that is not computed here.
bool IsNeutral(const GgufFile& file, const ModelConfig& config, std::string_view name) {
  const std::string key = Key(name);
  const auto int_is = [&](int64_t wanted) {
    return file.FindInt(key, std::numeric_limits<int64_t>::min(),
                        std::numeric_limits<int64_t>::max()) == wanted;
  };
  const auto float_is = [&](double wanted) { return file.FindFloat(key) == wanted; };
  if (name == "vocab_size") return int_is(config.vocab_size);
  if (name == "attention.value_length") return int_is(config.head_dim);
  if (name == "attention.sliding_window" || name == "expert_count" || name == "expert_used_count") {
    return int_is(0);
  }
  if (name == "attention.causal") return file.FindBool(key) == true;
  if (name == "rope.scaling.type") return file.FindString(key) == "none";
  if (name == "rope.scaling.factor" || name == "rope.scale_linear") return float_is(1.0);
  if (name == "tensor_data_layout") return file.FindString(key) == "Meta AI original pth";
  return false;
}

void RefuseUnknownKeys(const GgufFile& file, const ModelConfig& config) {
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string_view name = std::string_view(key).substr(kPrefix.size());
    if (std::find(kReadKeys.begin(), kReadKeys.end(), name) != kReadKeys.end()) continue;
    if (IsNeutral(file, config, name)) continue;
    Refuse(file, key, "its value asks for a function that is not computed here",
           "use a plain llama model: no rope scaling, sliding window or experts");
  }
  if (file.FindInt("split.count", 0, std::numeric_limits<int64_t>::max()).value_or(0) > 1) {
    Refuse(file, "split.count", "the file is one part of a split model", "merge the parts first");
  }
}

int32_t RequireCount(const GgufFile& file, std::string_view name, int64_t high) {
  return static_cast<int32_t>(file.RequireInt(Key(name), 1, high));
}

int32_t FindCount(const GgufFile& file, std::string_view name, int64_t low, int64_t high,
                  int32_t otherwise) {
  const auto value = file.FindInt(Key(name), low, high);
  return value ? static_cast<int32_t>(*value) : otherwise;
}

void ReadHeads(const GgufFile& file, ModelConfig* config) {
  config->num_heads = RequireCount(file, "attention.head_count", kMaxHeads);
  config->num_kv_heads =
      FindCount(file, "attention.head_count_kv", 1, config->num_heads, config->num_heads);
  if (config->num_heads % config->num_kv_heads != 0) {
    Refuse(file, Key("attention.head_count_kv"),
           fmt::format("{} query heads cannot share {} KV heads evenly", config->num_heads,
                       config->num_kv_heads),
           "the head counts must divide");
  }
  const std::string key_length = Key("attention.key_length");
  if (!file.FindInt(key_length, 1, kMaxDim) && config->dim % config->num_heads != 0) {
    Refuse(file, key_length,
           fmt::format("it is absent and embedding_length {} is no multiple of {} heads",
                       config->dim, config->num_heads),
           "state the head dimension");
  }
  config->head_dim =
      FindCount(file, "attention.key_length", 1, kMaxDim, config->dim / config->num_heads);
  if (int64_t{config->num_heads} * config->head_dim > kMaxDim) {
    Refuse(file, key_length,
           fmt::format("{} heads of {} elements are too wide", config->num_heads, config->head_dim),
           "");
  }
  if (config->head_dim % 2 != 0) {
    Refuse(file, key_length,
           fmt::format("head dimension {} is odd, so RoPE cannot pair it", config->head_dim), "");
  }
}

void ReadRope(const GgufFile& file, ModelConfig* config) {
  config->rope_dim = FindCount(file, "rope.dimension_count", 2, config->head_dim, config->head_dim);
  if (config->rope_dim % 2 != 0) {
    Refuse(file, Key("rope.dimension_count"),
           fmt::format("{} is odd, so RoPE cannot pair the dimensions", config->rope_dim), "");
  }
  // At least 1, so that no angle exceeds its position and CanonicalSinCos stays in its domain.
  config->rope_theta = file.FindFloat(Key("rope.freq_base")).value_or(10000.0);
  if (!(config->rope_theta >= 1.0 && config->rope_theta <= 1e15)) {
    Refuse(file, Key("rope.freq_base"), fmt::format("{} is outside [1, 1e15]", config->rope_theta),
           "");
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

}  // namespace

ModelConfig ReadModelConfig(const GgufFile& file) {
  ModelConfig config;
  config.architecture = file.RequireString("general.architecture");
  if (config.architecture != "llama") {
    Refuse(file, "general.architecture",
           fmt::format("architecture '{}' is not supported", config.architecture),
           "use a model of architecture 'llama'");
  }
  config.name = file.FindString("general.name").value_or(file.path());
  config.dim = RequireCount(file, "embedding_length", kMaxDim);
  config.ffn_dim = RequireCount(file, "feed_forward_length", kMaxDim);
  config.num_layers = RequireCount(file, "block_count", kMaxLayers);
  config.context_length = RequireCount(file, "context_length", kMaxContext);
  ReadHeads(file, &config);
  ReadRope(file, &config);
  const std::string eps_key = Key("attention.layer_norm_rms_epsilon");
  const double eps = file.RequireFloat(eps_key);
  config.rms_eps = static_cast<float>(eps);
  if (!(eps >= 0.0 && eps <= 1.0)) {
    Refuse(file, eps_key, fmt::format("{} is outside [0, 1]", eps), "");
  }
  config.vocab_size = ReadVocabSize(file);
  RefuseUnknownKeys(file, config);
  return config;
}

}  // namespace lockstep
