#include "engine/synthetic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "caches/check.h"
#include "caches/error.h"
#include "caches/random.h"
#include "engine/model/architectures.h"
#include "engine/model/synthetic_rows.h"
#include "engine/model/synthetic_vocab.h"

namespace lockstep {
namespace {

// Gains, as the standard deviation of a matrix's outputs for inputs of RMS 1. They keep a random
// model from the two degenerate ends. Embeddings are small beside what the layers add, so that a
// tied head does not merely repeat its input; query and key gains make attention scores with a
// standard deviation of 2 to 3, so that a softmax is neither flat nor a single 1.
constexpr float kEmbeddingRms = 0.0625f;
constexpr float kQueryKeyGain = 1.5f;
constexpr float kQkNorm = 1.5f;  // weight of QK-norm; scores then have about its square
constexpr float kValueGain = 1.0f;
constexpr float kOutputGain = 1.0f;
constexpr float kFfnGain = 1.5f;
constexpr float kDownGain = 1.0f;
constexpr float kRouterGain = 1.5f;  // one expert of a row has most of the weight, not all
constexpr float kLogitRms = 4.0f;
constexpr float kBiasRms = 0.5f;

constexpr float kRmsEps = 1e-5f;

// Heavy-tailed with mean 0, variance 1 and kurtosis 5.8, and bounded by 27^(1/2): the product of
// three independent odd integers, each uniform in (-2^21, 2^21), scaled. The product is an exact
// 64-bit integer and is rounded once.
float HeavyTailed(Random& random) {
  const uint64_t bits = random.Next();
  const auto odd = [bits](int shift) {
    return static_cast<int64_t>((bits >> shift & 0x1fffff) << 1 | 1) - (1 << 21);
  };
  constexpr float kScale = 0x1.4c8dc2p+2f / 0x1p63f;  // 27^(1/2), and the integers' range
  return static_cast<float>(odd(0) * odd(21) * odd(42)) * kScale;
}

// Uniform in [low, high), a multiple of their distance / 2^24.
float Uniform(Random& random, float low, float high) {
  return low + (high - low) * (static_cast<float>(random.Below(1u << 24)) * 0x1p-24f);
}

// Adds tensors one after another; each draws from its own stream, numbered in this order, so that
// a tensor does not depend on the sizes of those before it.
class TensorWriter {
 public:
  TensorWriter(const SyntheticSpec& spec, uint64_t seed, GgufWriter* writer)
      : spec_(spec), root_(seed), writer_(*writer) {}

  // Elements of standard deviation `rms`.
  void Matrix(std::string_view name, int32_t rows, int32_t cols, float rms) {
    const GgmlType type = TypeOf(name);
    writer_.AddTensor(name, type, {cols, rows}, Weights(name, type, rows, cols, rms));
  }

  // `count` of them in one tensor.
  void Matrices(std::string_view name, int32_t count, int32_t rows, int32_t cols, float gain) {
    const GgmlType type = TypeOf(name);
    writer_.AddTensor(name, type, {cols, rows, count},
                      Weights(name, type, count * rows, cols, gain / Root(cols)));
  }

  // Routers stay F32.
  void Router(std::string_view name, std::vector<int64_t> shape, float gain) {
    const auto cols = static_cast<int32_t>(shape[0]);
    const auto rows = static_cast<int32_t>(shape.size() > 1 ? shape[1] : 1);
    writer_.AddTensor(name, GgmlType::kF32, std::move(shape),
                      Weights(name, GgmlType::kF32, rows, cols, gain / Root(cols)));
  }

  // The same, for outputs of standard deviation `gain` when inputs have 1.
  void Projection(std::string_view name, int32_t rows, int32_t cols, float gain) {
    Matrix(name, rows, cols, gain / std::sqrt(static_cast<float>(cols)));
  }

  // A norm weight, uniform in center * [0.5, 1.5).
  void Norm(std::string_view name, int32_t elements, float center) {
    Random random = NextStream();
    std::vector<float> values(static_cast<size_t>(elements));
    for (float& value : values) value = Uniform(random, 0.5f * center, 1.5f * center);
    Vector(name, values);
  }

  // 1 for the fast pairs, then rising to `most`, 8 where Llama 3.1 stretches the slow ones.
  void RopeFactors(std::string_view name, int32_t pairs, float most) {
    std::vector<float> values(static_cast<size_t>(pairs));
    for (int32_t i = 0; i < pairs; ++i) {
      const float slow = static_cast<float>(2 * i - pairs) / static_cast<float>(pairs);
      values[static_cast<size_t>(i)] = slow > 0 ? 1.0f + (most - 1.0f) * slow : 1.0f;
    }
    Vector(name, values);
  }

  void Bias(std::string_view name, int32_t elements) {
    Random random = NextStream();
    std::vector<float> values(static_cast<size_t>(elements));
    for (float& value : values) value = HeavyTailed(random) * kBiasRms;
    Vector(name, values);
  }

 private:
  GgmlType TypeOf(std::string_view name) const {
    const bool wide = name == "token_embd.weight" || name == "output.weight" ||
                      name.ends_with("attn_v.weight") || name.ends_with("ffn_down.weight");
    return wide ? spec_.wide_type.value_or(spec_.weight_type) : spec_.weight_type;
  }

  static float Root(int32_t cols) { return std::sqrt(static_cast<float>(cols)); }

  std::vector<std::byte> Weights(std::string_view name, GgmlType type, int32_t rows, int32_t cols,
                                 float rms) {
    Random random = NextStream();
    return SyntheticRows(name, type, rows, cols, [&] { return HeavyTailed(random) * rms; });
  }

  Random NextStream() { return root_.Split(next_stream_++); }

  void Vector(std::string_view name, std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    writer_.AddTensor(name, GgmlType::kF32, {static_cast<int64_t>(values.size())},
                      {bytes.begin(), bytes.end()});
  }

  const SyntheticSpec& spec_;
  Random root_;
  uint64_t next_stream_ = 0;
  GgufWriter& writer_;
};

int32_t RopeDim(const SyntheticSpec& spec) {
  return spec.rope_dim > 0 ? spec.rope_dim : spec.head_dim;
}

// Of Phi-3: Q, K and V in one matrix, gate and up in another.
bool Fused(const SyntheticSpec& spec) { return spec.architecture == "phi3"; }

bool IsGemma(const SyntheticSpec& spec) { return spec.architecture.starts_with("gemma"); }

// Gemma multiplies embedded tokens by the root of their dimension.
float EmbeddingRms(const SyntheticSpec& spec) {
  return IsGemma(spec) ? kEmbeddingRms / std::sqrt(static_cast<float>(spec.dim)) : kEmbeddingRms;
}

void AddMetadata(const SyntheticSpec& spec, GgufWriter* writer) {
  const auto count = [&](std::string_view key, int32_t value) {
    LS_CHECK(value > 0, "{}: {} is {}", spec.name, key, value);
    writer->AddUint32(key, static_cast<uint32_t>(value));
  };
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", spec.architecture, name);
  };
  writer->AddString("general.architecture", spec.architecture);
  writer->AddString("general.name", spec.name);
  count(key("context_length"), spec.context_length);
  count(key("embedding_length"), spec.dim);
  count(key("block_count"), spec.num_layers);
  count(key("feed_forward_length"), spec.ffn_dim);
  count(key("attention.head_count"), spec.num_heads);
  count(key("attention.head_count_kv"), spec.num_kv_heads);
  count(key("attention.key_length"), spec.head_dim);
  count(key("attention.value_length"), spec.head_dim);
  count(key("rope.dimension_count"), RopeDim(spec));
  writer->AddFloat32(key("rope.freq_base"), spec.rope_theta);
  if (spec.rope_linear != 1.0f) {
    writer->AddString(key("rope.scaling.type"), "linear");
    writer->AddFloat32(key("rope.scaling.factor"), spec.rope_linear);
  }
  if (spec.yarn != 1.0f) {
    writer->AddString(key("rope.scaling.type"), "yarn");
    writer->AddFloat32(key("rope.scaling.factor"), spec.yarn);
  }
  if (spec.long_rope) writer->AddFloat32(key("rope.scaling.attn_factor"), 1.19f);
  if (spec.yarn != 1.0f || spec.long_rope) {
    count(key("rope.scaling.original_context_length"), spec.context_length / 4);
  }
  if (spec.window > 0) count(key("attention.sliding_window"), spec.window);
  if (spec.experts > 0) {
    count(key("expert_count"), spec.experts);
    count(key("expert_used_count"), spec.experts_used);
    if (spec.expert_dim > 0) count(key("expert_feed_forward_length"), spec.expert_dim);
    if (spec.shared_dim > 0) count(key("expert_shared_feed_forward_length"), spec.shared_dim);
  }
  if (spec.attention_cap != 0)
    writer->AddFloat32(key("attn_logit_softcapping"), spec.attention_cap);
  if (spec.logit_cap != 0) writer->AddFloat32(key("final_logit_softcapping"), spec.logit_cap);
  if (spec.multipliers) {
    writer->AddFloat32(key("embedding_scale"), 3.0f);
    writer->AddFloat32(key("residual_scale"), 0.34f);
    writer->AddFloat32(key("logit_scale"), 1.7f);
    writer->AddFloat32(key("attention.scale"), 1.6f / static_cast<float>(spec.head_dim));
  }
  writer->AddFloat32(key("attention.layer_norm_rms_epsilon"), kRmsEps);
  count(key("vocab_size"), spec.vocab_size);
}

void AddExperts(const SyntheticSpec& spec, int32_t layer, TensorWriter* tensors) {
  const auto name = [&](std::string_view part) {
    return fmt::format("blk.{}.ffn_{}.weight", layer, part);
  };
  const int32_t expert_dim = spec.expert_dim > 0 ? spec.expert_dim : spec.ffn_dim;
  tensors->Router(name("gate_inp"), {spec.dim, spec.experts}, kRouterGain);
  tensors->Matrices(name("gate_exps"), spec.experts, expert_dim, spec.dim, kFfnGain);
  tensors->Matrices(name("up_exps"), spec.experts, expert_dim, spec.dim, kFfnGain);
  tensors->Matrices(name("down_exps"), spec.experts, spec.dim, expert_dim, kDownGain);
  if (spec.shared_dim == 0) return;
  tensors->Router(name("gate_inp_shexp"), {spec.dim}, kRouterGain);
  tensors->Projection(name("gate_shexp"), spec.shared_dim, spec.dim, kFfnGain);
  tensors->Projection(name("up_shexp"), spec.shared_dim, spec.dim, kFfnGain);
  tensors->Projection(name("down_shexp"), spec.dim, spec.shared_dim, kDownGain);
}

void AddLayer(const SyntheticSpec& spec, int32_t layer, TensorWriter* tensors) {
  const auto name = [&](std::string_view suffix) {
    return fmt::format("blk.{}.{}", layer, suffix);
  };
  const int32_t q_dim = spec.num_heads * spec.head_dim;
  const int32_t kv_dim = spec.num_kv_heads * spec.head_dim;
  tensors->Norm(name("attn_norm.weight"), spec.dim, 1.0f);
  if (Fused(spec)) {
    tensors->Projection(name("attn_qkv.weight"), q_dim + 2 * kv_dim, spec.dim, kQueryKeyGain);
  } else {
    tensors->Projection(name("attn_q.weight"), q_dim, spec.dim, kQueryKeyGain);
    tensors->Projection(name("attn_k.weight"), kv_dim, spec.dim, kQueryKeyGain);
    tensors->Projection(name("attn_v.weight"), kv_dim, spec.dim, kValueGain);
  }
  if (spec.qkv_bias) {
    tensors->Bias(name("attn_q.bias"), q_dim);
    tensors->Bias(name("attn_k.bias"), kv_dim);
    tensors->Bias(name("attn_v.bias"), kv_dim);
  }
  if (spec.qk_norm) {
    tensors->Norm(name("attn_q_norm.weight"), spec.head_dim, kQkNorm);
    tensors->Norm(name("attn_k_norm.weight"), spec.head_dim, kQkNorm);
  }
  tensors->Projection(name("attn_output.weight"), spec.dim, q_dim, kOutputGain);
  if (IsGemma(spec)) {
    tensors->Norm(name("post_attention_norm.weight"), spec.dim, 0.7f);
    tensors->Norm(name("post_ffw_norm.weight"), spec.dim, 0.7f);
  }
  tensors->Norm(name("ffn_norm.weight"), spec.dim, 1.0f);
  if (spec.experts > 0) return AddExperts(spec, layer, tensors);
  if (Fused(spec)) {
    tensors->Projection(name("ffn_up.weight"), 2 * spec.ffn_dim, spec.dim, kFfnGain);
  } else {
    tensors->Projection(name("ffn_gate.weight"), spec.ffn_dim, spec.dim, kFfnGain);
    tensors->Projection(name("ffn_up.weight"), spec.ffn_dim, spec.dim, kFfnGain);
  }
  tensors->Projection(name("ffn_down.weight"), spec.dim, spec.ffn_dim, kDownGain);
}

}  // namespace

const SyntheticSpec& SyntheticPreset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const SyntheticSpec& spec : SyntheticPresets()) {
    if (spec.name == name) return spec;
    names.push_back(spec.name);
  }
  throw Error({"synthetic model", fmt::format("there is no preset '{}'", name),
               fmt::format("choose one of {}", fmt::join(names, ", "))});
}

KvGeometry SyntheticGeometry(const SyntheticSpec& spec, int32_t max_length) {
  const Architecture* architecture = FindArchitecture(spec.architecture);
  LS_CHECK(architecture != nullptr, "preset {} of no known architecture", spec.name);
  return {.num_layers = spec.num_layers,
          .num_kv_heads = spec.num_kv_heads,
          .head_dim = spec.head_dim,
          .max_length = max_length,
          .window = spec.window,
          .full_interval = architecture->full_interval};
}

std::vector<std::byte> MakeSyntheticImage(const SyntheticSpec& spec, uint64_t seed) {
  GgufWriter writer;
  AddMetadata(spec, &writer);
  AddSyntheticVocab(spec.vocab_size, &writer);
  TensorWriter tensors(spec, seed, &writer);
  tensors.Matrix("token_embd.weight", spec.vocab_size, spec.dim, EmbeddingRms(spec));
  for (int32_t layer = 0; layer < spec.num_layers; ++layer) AddLayer(spec, layer, &tensors);
  const float head_rms = EmbeddingRms(spec) * std::sqrt(static_cast<float>(spec.dim));
  tensors.Norm("output_norm.weight", spec.dim, kLogitRms / head_rms);
  if (!spec.tied_head) {
    tensors.Matrix("output.weight", spec.vocab_size, spec.dim, EmbeddingRms(spec));
  }
  const int32_t pairs = RopeDim(spec) / 2;
  if (spec.rope_factors) tensors.RopeFactors("rope_freqs.weight", pairs, 8.0f);
  if (spec.long_rope) {
    tensors.RopeFactors("rope_factors_long.weight", pairs, 24.0f);
    tensors.RopeFactors("rope_factors_short.weight", pairs, 1.5f);
  }
  return writer.Finish();
}

std::shared_ptr<const GgufFile> MakeSyntheticModel(const SyntheticSpec& spec, uint64_t seed) {
  return GgufFile::FromBytes(MakeSyntheticImage(spec, seed),
                             fmt::format("synthetic:{}/{}", spec.name, seed));
}

}  // namespace lockstep
