#include "engine/model.h"

#include <fmt/format.h>

#include <set>

#include "caches/check.h"
#include "caches/error.h"
#include "engine/model/model_config.h"

namespace lockstep {
namespace {

// Hands out tensors by name and remembers which, so that nothing in the file stays unread.
class TensorReader {
 public:
  explicit TensorReader(const GgufFile& file) : file_(file) {}

  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }

  // [rows, cols] as the engine names it; GGUF's shape has the contiguous dimension first.
  const GgufTensor& Matrix(const std::string& name, int32_t rows, int32_t cols) {
    return Take(name, {cols, rows});
  }

  PackedMatrix Packed(const std::string& name, int32_t rows, int32_t cols) {
    const GgufTensor& tensor = Matrix(name, rows, cols);
    return PackedMatrix(tensor.type, rows, cols, tensor.data);
  }

  std::vector<float> Vector(const std::string& name, int32_t elements) {
    const GgufTensor& tensor = Take(name, {elements});
    std::vector<float> values(static_cast<size_t>(elements));
    DecodeWeights(tensor.type, tensor.data, values);
    return values;
  }

  std::vector<float> OptionalVector(const std::string& name, int32_t elements) {
    return Has(name) ? Vector(name, elements) : std::vector<float>();
  }

  // A tensor that nobody took (frequency factors, other biases, experts) is part of a function
  // that is not computed here; leaving it out would give wrong answers in silence.
  void RefuseUnused() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      throw Error({fmt::format("{}: tensor '{}'", file_.path(), tensor.name),
                   "it is no part of the llama function computed here",
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

LayerWeights ReadLayer(TensorReader& reader, const ModelConfig& config, int32_t layer) {
  const auto name = [&](std::string_view suffix) {
    return fmt::format("blk.{}.{}", layer, suffix);
  };
  LayerWeights w;
  w.attn_norm = reader.Vector(name("attn_norm.weight"), config.dim);
  w.wq = reader.Packed(name("attn_q.weight"), config.q_dim(), config.dim);
  w.wk = reader.Packed(name("attn_k.weight"), config.kv_dim(), config.dim);
  w.wv = reader.Packed(name("attn_v.weight"), config.kv_dim(), config.dim);
  w.bq = reader.OptionalVector(name("attn_q.bias"), config.q_dim());
  w.bk = reader.OptionalVector(name("attn_k.bias"), config.kv_dim());
  w.bv = reader.OptionalVector(name("attn_v.bias"), config.kv_dim());
  w.q_norm = reader.OptionalVector(name("attn_q_norm.weight"), config.head_dim);
  w.k_norm = reader.OptionalVector(name("attn_k_norm.weight"), config.head_dim);
  w.wo = reader.Packed(name("attn_output.weight"), config.dim, config.q_dim());
  w.ffn_norm = reader.Vector(name("ffn_norm.weight"), config.dim);
  w.w_gate = reader.Packed(name("ffn_gate.weight"), config.ffn_dim, config.dim);
  w.w_up = reader.Packed(name("ffn_up.weight"), config.ffn_dim, config.dim);
  w.w_down = reader.Packed(name("ffn_down.weight"), config.dim, config.ffn_dim);
  return w;
}

}  // namespace

std::shared_ptr<const Model> Model::Load(std::shared_ptr<const GgufFile> file) {
  LS_CHECK(file != nullptr, "no file");
  std::shared_ptr<Model> model(new Model());
  model->file_ = std::move(file);
  ModelConfig& config = model->config_;
  config = ReadModelConfig(*model->file_);

  TensorReader reader(*model->file_);
  model->token_embedding_ = &reader.Matrix("token_embd.weight", config.vocab_size, config.dim);
  // One layer at a time: a block count that the file does not back ends at its first absent tensor.
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    model->layers_.push_back(ReadLayer(reader, config, layer));
  }
  model->output_norm_ = reader.Vector("output_norm.weight", config.dim);
  config.tied_head = !reader.Has("output.weight");
  model->output_ = reader.Packed(config.tied_head ? "token_embd.weight" : "output.weight",
                                 config.vocab_size, config.dim);
  reader.RefuseUnused();
  return model;
}

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
