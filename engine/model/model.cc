#include "engine/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <list>
#include <optional>
#include <set>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/model/architectures.h"
#include "engine/model/model_config.h"
#include "engine/model/weight_arena.h"
#include "engine/thread_team.h"

namespace lockstep {
namespace {

// Hands out tensors by name and remembers which, so that nothing in the file stays unread.
class TensorReader {
 public:
  explicit TensorReader(const GgufFile& file) : file_(file) {}

  const std::string& path() const { return file_.path(); }
  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }

  int64_t RequireInt(const std::string& key, int64_t low, int64_t high) const {
    return file_.RequireInt(key, low, high);
  }

  // [rows, cols] as the engine names it; GGUF's shape has the contiguous dimension first.
  const GgufTensor& Matrix(const std::string& name, int32_t rows, int32_t cols) {
    return Take(name, {cols, rows});
  }

  // A matrix of one row.
  const GgufTensor& Row(const std::string& name, int32_t cols) { return Take(name, {cols}); }

  // `count` matrices, one behind the other.
  const GgufTensor& Matrices(const std::string& name, int32_t count, int32_t rows, int32_t cols) {
    return Take(name, {cols, rows, count});
  }

  std::vector<float> Vector(const std::string& name, int32_t elements) {
    const GgufTensor& tensor = Take(name, {elements});
    std::vector<float> values(static_cast<size_t>(elements));
    DecodeWeights(tensor.type, tensor.data, values);
    return values;
  }

  std::vector<float> OptionalVector(const std::string& name, int32_t elements,
                                    bool needed = false) {
    return needed || Has(name) ? Vector(name, elements) : std::vector<float>();
  }

  // A tensor that nobody took (frequency factors, other biases, experts) is part of a function
  // that is not computed here; leaving it out would give wrong answers in silence.
  void RefuseUnused() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      throw Error({fmt::format("{}: tensor '{}'", file_.path(), tensor.name),
                   "it is no part of the function computed here",
                   "use a model without this tensor"});
    }
  }

 private:
  // RequireTensor refuses types without a kernel; the parser refused rows of half a block.
  const GgufTensor& Take(const std::string& name, const std::vector<int64_t>& shape) {
    used_.insert(name);
    return file_.RequireTensor(name, shape);
  }

  const GgufFile& file_;
  std::set<std::string> used_;
};

// A matrix that is found and checked, and not packed yet: a tensor, or some of its rows.
struct Unpacked {
  GgmlType type = GgmlType::kF32;
  std::span<const std::byte> data;
  int32_t rows = 0;
  int32_t cols = 0;
  PackedMatrix* packed = nullptr;  // where it goes
};

// What a piece of packing work is, at most: progress is told after each.
constexpr int64_t kPieceBytes = int64_t{16} << 20;

// A model whose head is smaller than this is packed before a team has started.
constexpr size_t kSharedBytes = size_t{1} << 20;

// Lays the matrices one after another, in their order, and packs them.
std::unique_ptr<WeightArena> PackAll(std::span<const Unpacked> matrices, ThreadTeam& team,
                                     const ModelLoadOptions& options) {
  int64_t room = 0;
  int64_t total = 0;  // bytes of the file
  for (const Unpacked& m : matrices) {
    room += PackedMatrix::PackedBytes(m.type, m.rows, m.cols);
    total += static_cast<int64_t>(m.data.size());
  }
  auto arena = std::make_unique<WeightArena>(room);
  constexpr int32_t kGrain = PackedMatrix::kPackGroups;
  int64_t done = 0;
  for (const Unpacked& m : matrices) {
    PackedMatrix& packed = *m.packed;
    packed = PackedMatrix::Over(arena->Take(PackedMatrix::PackedBytes(m.type, m.rows, m.cols)),
                                m.type, m.rows, m.cols);
    const auto bytes = static_cast<int64_t>(m.data.size());
    const auto piece = static_cast<int32_t>(
        std::max<int64_t>(kPieceBytes / packed.group_bytes() / kGrain, 1) * kGrain);
    for (int32_t first = 0; first < packed.groups(); first += piece) {
      const int32_t count = std::min(piece, packed.groups() - first);
      team.Run([&](int32_t part) {
        const PartRange range = PartOf(count, part, team.size(), kGrain);
        if (range.empty()) return;
        packed.Pack(m.data, first + static_cast<int32_t>(range.begin),
                    first + static_cast<int32_t>(range.end));
      });
      if (options.progress) {
        options.progress(done + bytes * (first + count) / packed.groups(), total);
      }
    }
    done += bytes;
  }
  return arena;
}

// A matrix and where it goes: by itself a tensor, or some of the rows of one that holds several.
struct MatrixPlace {
  int32_t rows = 0;
  PackedMatrix* packed = nullptr;
};

// The matrices of `name`, of `cols` columns, one below the other.
void FindMatrices(TensorReader& reader, const std::string& name, int32_t cols,
                  std::initializer_list<MatrixPlace> places, std::vector<Unpacked>* matrices) {
  int32_t rows = 0;
  for (const MatrixPlace& place : places) rows += place.rows;
  const GgufTensor& tensor = reader.Matrix(name, rows, cols);
  const size_t row_bytes = tensor.data.size() / static_cast<size_t>(rows);
  size_t first = 0;
  for (const MatrixPlace& place : places) {
    const auto count = static_cast<size_t>(place.rows);
    matrices->push_back({tensor.type, tensor.data.subspan(first * row_bytes, count * row_bytes),
                         place.rows, cols, place.packed});
    first += count;
  }
}

// The FFN of a mixture of experts: the router, then expert after expert.
void ReadExperts(TensorReader& reader, const ModelConfig& config, int32_t layer, MoeWeights& moe,
                 std::vector<Unpacked>* matrices) {
  const auto name = [&](std::string_view suffix) {
    return fmt::format("blk.{}.{}.weight", layer, suffix);
  };
  const int32_t dim = config.dim, expert_dim = config.expert_dim, count = config.num_experts;
  FindMatrices(reader, name("ffn_gate_inp"), dim, {{count, &moe.router}}, matrices);
  if (config.shared_dim > 0) {
    const GgufTensor& row = reader.Row(name("ffn_gate_inp_shexp"), dim);
    matrices->push_back({row.type, row.data, 1, dim, &moe.shared_router});
  }
  const GgufTensor& gate = reader.Matrices(name("ffn_gate_exps"), count, expert_dim, dim);
  const GgufTensor& up = reader.Matrices(name("ffn_up_exps"), count, expert_dim, dim);
  const GgufTensor& down = reader.Matrices(name("ffn_down_exps"), count, dim, expert_dim);
  const auto part = [&](const GgufTensor& tensor, size_t expert, int32_t rows, int32_t cols,
                        PackedMatrix* packed) {
    const size_t bytes = tensor.data.size() / static_cast<size_t>(count);
    matrices->push_back(
        {tensor.type, tensor.data.subspan(expert * bytes, bytes), rows, cols, packed});
  };
  moe.experts.resize(static_cast<size_t>(count));
  for (size_t expert = 0; expert < moe.experts.size(); ++expert) {
    ExpertWeights& w = moe.experts[expert];
    part(gate, expert, expert_dim, dim, &w.gate);
    part(up, expert, expert_dim, dim, &w.up);
    part(down, expert, dim, expert_dim, &w.down);
  }
  if (config.shared_dim == 0) return;
  FindMatrices(reader, name("ffn_gate_shexp"), dim, {{config.shared_dim, &moe.shared.gate}},
               matrices);
  FindMatrices(reader, name("ffn_up_shexp"), dim, {{config.shared_dim, &moe.shared.up}}, matrices);
  FindMatrices(reader, name("ffn_down_shexp"), config.shared_dim, {{dim, &moe.shared.down}},
               matrices);
}

// The matrices of a layer in the order in which a step reads them; the rest goes into `w`.
void ReadLayer(TensorReader& reader, const ModelConfig& config, int32_t layer, LayerWeights& w,
               std::vector<Unpacked>* matrices) {
  const auto name = [&](std::string_view suffix) {
    return fmt::format("blk.{}.{}", layer, suffix);
  };
  const auto find = [&](std::string_view suffix, int32_t cols,
                        std::initializer_list<MatrixPlace> places) {
    FindMatrices(reader, name(suffix), cols, places, matrices);
  };
  const Architecture& family = *FindArchitecture(config.architecture);
  w.attn_norm = reader.Vector(name("attn_norm.weight"), config.dim);
  const MatrixPlace q = {config.q_dim(), &w.wq};
  const MatrixPlace k = {config.kv_dim(), &w.wk};
  const MatrixPlace v = {config.kv_dim(), &w.wv};
  if (family.fused) {
    find("attn_qkv.weight", config.dim, {q, k, v});
  } else {
    find("attn_q.weight", config.dim, {q});
    find("attn_k.weight", config.dim, {k});
    find("attn_v.weight", config.dim, {v});
  }
  const auto bias = [&](std::string_view suffix, int32_t elements) {
    return reader.OptionalVector(name(suffix), elements, family.needs_qkv_bias);
  };
  const auto norm = [&](std::string_view suffix) {
    return reader.OptionalVector(name(suffix), config.head_dim, family.needs_qk_norm);
  };
  w.bq = bias("attn_q.bias", config.q_dim());
  w.bk = bias("attn_k.bias", config.kv_dim());
  w.bv = bias("attn_v.bias", config.kv_dim());
  w.q_norm = norm("attn_q_norm.weight");
  w.k_norm = norm("attn_k_norm.weight");
  find("attn_output.weight", config.q_dim(), {{config.dim, &w.wo}});
  if (family.is_gemma) {
    w.post_attn_norm = reader.Vector(name("post_attention_norm.weight"), config.dim);
    w.post_ffn_norm = reader.Vector(name("post_ffw_norm.weight"), config.dim);
  }
  w.ffn_norm = reader.Vector(name("ffn_norm.weight"), config.dim);
  if (config.num_experts > 0) return ReadExperts(reader, config, layer, w.moe, matrices);
  const MatrixPlace gate = {config.ffn_dim, &w.w_gate};
  const MatrixPlace up = {config.ffn_dim, &w.w_up};
  if (family.fused) {
    find("ffn_up.weight", config.dim, {gate, up});
  } else {
    find("ffn_gate.weight", config.dim, {gate});
    find("ffn_up.weight", config.dim, {up});
  }
  find("ffn_down.weight", config.ffn_dim, {{config.dim, &w.w_down}});
}

// What the frequency of each pair is divided by. At least 1, so that no angle exceeds its position.
std::vector<float> ReadFactors(TensorReader& reader, const std::string& name, int32_t pairs) {
  std::vector<float> factors = reader.Vector(name, pairs);
  for (const float factor : factors) {
    if (factor >= 1.0f && factor <= 1e6f) continue;
    throw Error({fmt::format("{}: tensor '{}'", reader.path(), name),
                 fmt::format("it divides a frequency by {}, which is outside [1, 1e6]", factor),
                 "use a model whose RoPE factors stretch positions"});
  }
  return factors;
}

// One tensor of factors, or LongRoPE's two: one for contexts up to the original one and one for
// longer ones.
std::vector<float> RopeFactors(TensorReader& reader, const ModelConfig& config) {
  const int32_t pairs = config.rope.dim / 2;
  const std::string long_name = "rope_factors_long.weight";
  if (reader.Has(long_name)) {
    const std::string key = config.architecture + ".rope.scaling.original_context_length";
    const int64_t original = reader.RequireInt(key, 1, std::numeric_limits<int32_t>::max());
    std::vector<float> longer = ReadFactors(reader, long_name, pairs);
    std::vector<float> shorter = ReadFactors(reader, "rope_factors_short.weight", pairs);
    return config.context_length > original ? longer : shorter;
  }
  const std::string name = "rope_freqs.weight";
  return reader.Has(name) ? ReadFactors(reader, name, pairs) : std::vector<float>();
}

}  // namespace

Model::Model() = default;
Model::~Model() = default;

std::shared_ptr<const Model> Model::Load(std::shared_ptr<const GgufFile> file,
                                         const ModelLoadOptions& options) {
  LS_CHECK(file != nullptr, "no file");
  std::shared_ptr<Model> model(new Model());
  model->file_ = std::move(file);
  ModelConfig& config = model->config_;
  config = ReadModelConfig(*model->file_);

  TensorReader reader(*model->file_);
  model->token_embedding_ = &reader.Matrix("token_embd.weight", config.vocab_size, config.dim);
  // One layer at a time: a block count that the file does not back ends at its first absent tensor.
  std::list<LayerWeights> layers;  // a list: `matrices` points into it
  std::vector<Unpacked> matrices;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    ReadLayer(reader, config, layer, layers.emplace_back(), &matrices);
  }
  config.rope.factors = RopeFactors(reader, config);
  if (config.local_rope && FindArchitecture(config.architecture)->local_theta == 0) {
    config.local_rope->factors = config.rope.factors;
  }
  model->output_norm_ = reader.Vector("output_norm.weight", config.dim);
  config.tied_head = !reader.Has("output.weight");
  const std::string head = config.tied_head ? "token_embd.weight" : "output.weight";
  FindMatrices(reader, head, config.dim, {{config.vocab_size, &model->output_}}, &matrices);
  reader.RefuseUnused();

  std::optional<ThreadTeam> own;
  if (options.team == nullptr) {
    own.emplace(matrices.back().data.size() < kSharedBytes ? 1 : DefaultThreads());
  }
  model->arena_ = PackAll(matrices, own ? *own : *options.team, options);
  model->layers_.assign(std::make_move_iterator(layers.begin()),
                        std::make_move_iterator(layers.end()));
  return model;
}

int64_t Model::weight_bytes() const { return arena_->size(); }
int64_t Model::HugePageBytes() const { return arena_->HugePageBytes(); }

void Model::Embed(int32_t token, std::span<float> out) const {
  LS_CHECK(token >= 0 && token < config_.vocab_size, "token {} of {}", token, config_.vocab_size);
  LS_CHECK(out.size() == static_cast<size_t>(config_.dim), "{} elements for an embedding of {}",
           out.size(), config_.dim);
  const auto row_bytes = token_embedding_->data.size() / static_cast<size_t>(config_.vocab_size);
  DecodeWeights(token_embedding_->type,
                token_embedding_->data.subspan(static_cast<size_t>(token) * row_bytes, row_bytes),
                out);
}

}  // namespace lockstep
