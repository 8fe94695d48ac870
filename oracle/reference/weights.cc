#include "oracle/reference/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "caches/check.h"
#include "caches/error.h"
#include "oracle/model_rows.h"
#include "oracle/reference/blocks.h"

namespace lockstep::oracle {
namespace {

constexpr int64_t kAny = std::numeric_limits<int32_t>::max();

uint64_t LittleEndian(const std::byte* at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | std::to_integer<uint64_t>(at[i]);
  return value;
}

// Elements [0, n) of consecutive blocks, and their constant parts where they are wanted.
void Decode(GgmlType type, const std::byte* at, int64_t n, std::vector<double>* values,
            std::vector<double>* constants = nullptr) {
  values->resize(static_cast<size_t>(n));
  double* out = values->data();
  switch (type) {
    case GgmlType::kF32:
      for (int64_t i = 0; i < n; ++i) {
        out[i] = std::bit_cast<float>(static_cast<uint32_t>(LittleEndian(at + 4 * i, 4)));
      }
      return;
    case GgmlType::kF16:
      for (int64_t i = 0; i < n; ++i) {
        out[i] = ValueOfF16(static_cast<uint16_t>(LittleEndian(at + 2 * i, 2)));
      }
      return;
    case GgmlType::kBF16:
      for (int64_t i = 0; i < n; ++i) {
        out[i] = ValueOfBf16(static_cast<uint16_t>(LittleEndian(at + 2 * i, 2)));
      }
      return;
    default:
      break;
  }
  std::vector<double> unused;
  if (constants == nullptr) constants = &unused;
  constants->resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i += BlockElements(type), at += BlockBytes(type)) {
    ValuesOfBlock(type, at, out + i, constants->data() + i);
  }
}

std::vector<double> Vector(const GgufFile& file, const std::string& name, int64_t elements) {
  const std::vector<int64_t> shape = {elements};
  const GgufTensor& tensor = file.RequireTensor(name, shape);
  std::vector<double> values;
  Decode(tensor.type, tensor.data.data(), elements, &values);
  return values;
}

std::vector<double> OptionalVector(const GgufFile& file, const std::string& name,
                                   int64_t elements) {
  if (file.FindTensor(name) == nullptr) return {};
  return Vector(file, name, elements);
}

// What a family does that no key of the file says: each in the words of its own description, and
// not of the engine's table.
void SetFamily(const std::string& path, const std::string& architecture, Hyperparameters* hp) {
  hp->normalize_experts = architecture == "llama" || architecture == "qwen3moe";
  if (architecture == "llama" || architecture == "granite") return;
  if (architecture == "qwen2" || architecture == "qwen3" || architecture == "qwen2moe" ||
      architecture == "qwen3moe") {
    hp->rope_halves = true;
    return;
  }
  if (architecture == "phi3") {
    hp->rope_halves = true;
    hp->fused = true;
    return;
  }
  if (architecture == "gemma2" || architecture == "gemma3") {
    hp->rope_halves = true;
    hp->gemma = true;
    hp->global_interval = architecture == "gemma2" ? 2 : 6;
    hp->local_theta = architecture == "gemma2" ? 0 : 10000;
    return;
  }
  if (architecture == "smollm3") {
    hp->no_rope_interval = 4;
    return;
  }
  throw Error({path, fmt::format("architecture '{}' has no reference", architecture),
               "use a model of another one"});
}

// LongRoPE has factors for the trained context and for a longer one; a model is run with all of its
// context.
std::vector<double> RopeFactors(const GgufFile& file, const std::string& architecture,
                                const Hyperparameters& hp) {
  if (file.FindTensor("rope_factors_long.weight") == nullptr) {
    return OptionalVector(file, "rope_freqs.weight", hp.rope_dim / 2);
  }
  const bool longer =
      file.RequireInt(architecture + ".context_length", 1, kAny) >
      file.RequireInt(architecture + ".rope.scaling.original_context_length", 1, kAny);
  return Vector(file, longer ? "rope_factors_long.weight" : "rope_factors_short.weight",
                hp.rope_dim / 2);
}

// Gemma divides scores by the root of query_pre_attn_scalar, which is the head's width but in the
// 27B sizes (144 of Gemma 2's heads of 128, 168 of Gemma 3's).
void SetGemma(const GgufFile& file, const std::string& architecture, Hyperparameters* hp) {
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const bool second = architecture == "gemma2";
  hp->embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(hp->dim)));
  if (hp->layers == (second ? 46 : 62)) {
    hp->attention_scale = 1 / std::sqrt(static_cast<double>(hp->dim / hp->heads));
  }
  hp->global_interval =
      file.FindInt(key("attention.sliding_window_pattern"), 1, kAny).value_or(hp->global_interval);
  hp->local_theta = file.FindFloat(key("rope.freq_base_swa")).value_or(hp->local_theta);
  if (!second) return;
  hp->window = file.FindInt(key("attention.sliding_window"), 0, kAny).value_or(4096);
  hp->attention_cap = file.FindFloat(key("attn_logit_softcapping")).value_or(50);
  hp->logit_cap = file.FindFloat(key("final_logit_softcapping")).value_or(30);
}

Hyperparameters ReadHyperparameters(const GgufFile& file) {
  const std::string architecture(file.RequireString("general.architecture"));
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto number = [&](const char* name, double otherwise) {
    return static_cast<double>(static_cast<float>(file.FindFloat(key(name)).value_or(otherwise)));
  };
  Hyperparameters hp;
  SetFamily(file.path(), architecture, &hp);
  hp.dim = file.RequireInt(key("embedding_length"), 1, kAny);
  hp.ffn_dim = file.RequireInt(key("feed_forward_length"), 1, kAny);
  hp.layers = file.RequireInt(key("block_count"), 1, kAny);
  hp.heads = file.RequireInt(key("attention.head_count"), 1, kAny);
  hp.kv_heads = file.FindInt(key("attention.head_count_kv"), 1, hp.heads).value_or(hp.heads);
  hp.head_dim = file.FindInt(key("attention.key_length"), 1, kAny).value_or(hp.dim / hp.heads);
  hp.rope_dim = file.FindInt(key("rope.dimension_count"), 1, hp.head_dim).value_or(hp.head_dim);
  hp.rope_theta = file.FindFloat(key("rope.freq_base")).value_or(10000.0);
  if (file.FindString(key("rope.scaling.type")) == "linear") {
    hp.rope_linear = file.RequireFloat(key("rope.scaling.factor"));
  }
  hp.rope_linear = file.FindFloat(key("rope.scale_linear")).value_or(hp.rope_linear);
  if (file.FindString(key("rope.scaling.type")) == "yarn") {
    hp.yarn = file.RequireFloat(key("rope.scaling.factor"));
    hp.yarn_context =
        static_cast<double>(file.RequireInt(key("rope.scaling.original_context_length"), 1, kAny));
    hp.yarn_fast = number("rope.scaling.yarn_beta_fast", 32);
    hp.yarn_slow = number("rope.scaling.yarn_beta_slow", 1);
  }
  hp.rope_stretch = number("rope.scaling.attn_factor", 1);
  hp.rope_factors = RopeFactors(file, architecture, hp);
  hp.window = file.FindInt(key("attention.sliding_window"), 0, kAny).value_or(0);
  hp.eps = static_cast<float>(file.RequireFloat(key("attention.layer_norm_rms_epsilon")));
  hp.embedding_scale = number("embedding_scale", 1);
  hp.residual_scale = number("residual_scale", 1);
  hp.logit_scale = number("logit_scale", 1);
  hp.attention_scale = number("attention.scale", 0);
  const auto count = [&](const char* name, int64_t otherwise) {
    return file.FindInt(key(name), 0, kAny).value_or(otherwise);
  };
  hp.experts = count("expert_count", 0);
  hp.experts_used = count("expert_used_count", 0);
  hp.expert_dim = count("expert_feed_forward_length", hp.ffn_dim);
  hp.shared_dim = count("expert_shared_feed_forward_length", 0);
  if (hp.gemma) SetGemma(file, architecture, &hp);
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    throw Error({file.path(), "there is no matrix 'token_embd.weight'", "the model is incomplete"});
  }
  hp.vocab = embedding->shape[1];
  return hp;
}

void ReadExperts(const GgufFile& file, const Hyperparameters& hp, int64_t layer, LayerTensors* t) {
  const auto name = [&](const char* part) {
    return fmt::format("blk.{}.ffn_{}.weight", layer, part);
  };
  t->router = Matrix(file, name("gate_inp"), hp.experts, hp.dim);
  const auto stack = [&](const char* part, int64_t rows, int64_t cols) {
    return Matrix::Stacked(file, name(part), hp.experts, rows, cols);
  };
  const Matrix gates = stack("gate_exps", hp.expert_dim, hp.dim);
  const Matrix ups = stack("up_exps", hp.expert_dim, hp.dim);
  const Matrix downs = stack("down_exps", hp.dim, hp.expert_dim);
  for (int64_t expert = 0; expert < hp.experts; ++expert) {
    t->experts.push_back({gates.Part(expert * hp.expert_dim, hp.expert_dim),
                          ups.Part(expert * hp.expert_dim, hp.expert_dim),
                          downs.Part(expert * hp.dim, hp.dim)});
  }
  if (hp.shared_dim == 0) return;
  t->shared_router = Matrix::Stacked(file, name("gate_inp_shexp"), 0, 1, hp.dim);
  t->shared = {Matrix(file, name("gate_shexp"), hp.shared_dim, hp.dim),
               Matrix(file, name("up_shexp"), hp.shared_dim, hp.dim),
               Matrix(file, name("down_shexp"), hp.dim, hp.shared_dim)};
}

LayerTensors ReadLayer(const GgufFile& file, const Hyperparameters& hp, int64_t layer) {
  const auto name = [&](const char* suffix) { return fmt::format("blk.{}.{}", layer, suffix); };
  const int64_t q_dim = hp.heads * hp.head_dim;
  const int64_t kv_dim = hp.kv_heads * hp.head_dim;
  LayerTensors t;
  t.attn_norm = Vector(file, name("attn_norm.weight"), hp.dim);
  t.ffn_norm = Vector(file, name("ffn_norm.weight"), hp.dim);
  if (hp.experts > 0) ReadExperts(file, hp, layer, &t);
  if (hp.fused) {
    const Matrix qkv(file, name("attn_qkv.weight"), q_dim + 2 * kv_dim, hp.dim);
    t.q = qkv.Part(0, q_dim);
    t.k = qkv.Part(q_dim, kv_dim);
    t.v = qkv.Part(q_dim + kv_dim, kv_dim);
    const Matrix gate_up(file, name("ffn_up.weight"), 2 * hp.ffn_dim, hp.dim);
    t.gate = gate_up.Part(0, hp.ffn_dim);
    t.up = gate_up.Part(hp.ffn_dim, hp.ffn_dim);
  } else {
    t.q = Matrix(file, name("attn_q.weight"), q_dim, hp.dim);
    t.k = Matrix(file, name("attn_k.weight"), kv_dim, hp.dim);
    t.v = Matrix(file, name("attn_v.weight"), kv_dim, hp.dim);
    if (hp.experts == 0) {
      t.gate = Matrix(file, name("ffn_gate.weight"), hp.ffn_dim, hp.dim);
      t.up = Matrix(file, name("ffn_up.weight"), hp.ffn_dim, hp.dim);
    }
  }
  t.out = Matrix(file, name("attn_output.weight"), hp.dim, q_dim);
  if (hp.experts == 0) t.down = Matrix(file, name("ffn_down.weight"), hp.dim, hp.ffn_dim);
  t.post_attn_norm = OptionalVector(file, name("post_attention_norm.weight"), hp.dim);
  t.post_ffn_norm = OptionalVector(file, name("post_ffw_norm.weight"), hp.dim);
  t.q_bias = OptionalVector(file, name("attn_q.bias"), q_dim);
  t.k_bias = OptionalVector(file, name("attn_k.bias"), kv_dim);
  t.v_bias = OptionalVector(file, name("attn_v.bias"), kv_dim);
  t.q_norm = OptionalVector(file, name("attn_q_norm.weight"), hp.head_dim);
  t.k_norm = OptionalVector(file, name("attn_k_norm.weight"), hp.head_dim);
  return t;
}

}  // namespace

Matrix::Matrix(const GgufFile& file, const std::string& name, int64_t rows, int64_t cols)
    : rows_(rows), cols_(cols) {
  const std::vector<int64_t> shape = {cols, rows};  // ggml order
  const GgufTensor& tensor = file.RequireTensor(name, shape);
  type_ = tensor.type;
  data_ = tensor.data;
}

Matrix Matrix::Stacked(const GgufFile& file, const std::string& name, int64_t count, int64_t rows,
                       int64_t cols) {
  std::vector<int64_t> shape = {cols};
  if (count > 0) shape = {cols, rows, count};
  const GgufTensor& tensor = file.RequireTensor(name, shape);
  Matrix matrix;
  matrix.type_ = tensor.type;
  matrix.rows_ = std::max<int64_t>(count, 1) * rows;
  matrix.cols_ = cols;
  matrix.data_ = tensor.data;
  return matrix;
}

Matrix Matrix::Part(int64_t first, int64_t count) const {
  LS_CHECK(first >= 0 && count > 0 && first + count <= rows_, "rows [{}, {}) of {}", first,
           first + count, rows_);
  const size_t row_bytes = data_.size() / static_cast<size_t>(rows_);
  Matrix part = *this;
  part.rows_ = count;
  part.data_ =
      data_.subspan(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(count) * row_bytes);
  return part;
}

void Matrix::Row(int64_t row, std::vector<double>* values, std::vector<double>* constants) const {
  LS_CHECK(row >= 0 && row < rows_, "row {} of {}", row, rows_);
  const int64_t row_bytes = static_cast<int64_t>(data_.size()) / rows_;
  Decode(type_, data_.data() + row * row_bytes, cols_, values, constants);
}

Weights ReadWeights(std::shared_ptr<const GgufFile> file) {
  Weights weights;
  weights.hp = ReadHyperparameters(*file);
  const Hyperparameters& hp = weights.hp;
  weights.embedding = Matrix(*file, "token_embd.weight", hp.vocab, hp.dim);
  const bool tied = file->FindTensor("output.weight") == nullptr;
  weights.head = tied ? weights.embedding : Matrix(*file, "output.weight", hp.vocab, hp.dim);
  weights.final_norm = Vector(*file, "output_norm.weight", hp.dim);
  for (int64_t layer = 0; layer < hp.layers; ++layer) {
    weights.layers.push_back(ReadLayer(*file, hp, layer));
  }
  weights.file = std::move(file);
  return weights;
}

}  // namespace lockstep::oracle
