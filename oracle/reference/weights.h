// Weights of a model as exact doubles, read from the GGUF file row by row.
#ifndef LOCKSTEP_ORACLE_REFERENCE_WEIGHTS_H_
#define LOCKSTEP_ORACLE_REFERENCE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/gguf.h"

namespace lockstep::oracle {

struct Change;

// A weight matrix [rows, cols] where it lies in the file, with what adapters add to its product.
class Matrix {
 public:
  Matrix() = default;
  Matrix(const GgufFile& file, const std::string& name, int64_t rows, int64_t cols);

  // `count` matrices [rows, cols] of one tensor, one below the other; with a count of 0 a tensor of
  // one dimension, which is a row.
  static Matrix Stacked(const GgufFile& file, const std::string& name, int64_t count, int64_t rows,
                        int64_t cols);

  // Rows [first, first + count) of it.
  Matrix Part(int64_t first, int64_t count) const;

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  bool quantized() const { return IsQuantized(type_); }
  GgmlType type() const { return type_; }
  // [cols]; `constants`, of a quantized type where wanted, as in ValuesOfBlock.
  void Row(int64_t row, std::vector<double>* values,
           std::vector<double>* constants = nullptr) const;

  std::vector<Change> changes;  // in the order of the adapters

 private:
  GgmlType type_ = GgmlType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  std::span<const std::byte> data_;
};

// scale * b (a x), which an adapter adds to a product.
struct Change {
  Matrix a;          // [rank, cols]
  Matrix b;          // [rows, rank]
  double scale = 1;  // of the adapter in use, times its alpha / rank
};

struct Hyperparameters {
  int64_t dim = 0, ffn_dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, rope_dim = 0;
  int64_t vocab = 0;
  double rope_theta = 0;
  double rope_linear = 1;            // positions are divided by it
  std::vector<double> rope_factors;  // [rope_dim / 2] divide the frequencies, or empty
  double yarn = 1;                   // YaRN's factor, and the rest of it
  double yarn_context = 0, yarn_fast = 32, yarn_slow = 1;
  double rope_stretch = 1;       // of what is rotated
  bool fused = false;            // Q, K and V in one tensor, gate and up in another
  bool rope_halves = false;      // pairs (i, i + rope_dim / 2)
  int64_t no_rope_interval = 0;  // every so-manieth layer is not rotated; 0: all are
  int64_t window = 0;            // rows that a query sees at most; 0: all
  int64_t global_interval = 0;   // every so-manieth layer sees all rows; 0: none
  double local_theta = 0;        // of the others, unscaled; 0: as all
  int64_t experts = 0, experts_used = 0, expert_dim = 0, shared_dim = 0;  // 0: none
  bool normalize_experts = false;
  bool gemma = false;  // GELU, scaled embeddings
  double attention_cap = 0, logit_cap = 0;
  double eps = 0;  // as binary32, and so are these:
  double embedding_scale = 1;
  double residual_scale = 1;
  double logit_scale = 1;      // the logits are divided by it
  double attention_scale = 0;  // of the dot products; 0: 1 / sqrt(head_dim)
};

struct ExpertTensors {
  Matrix gate, up, down;
};

struct LayerTensors {
  std::vector<double> attn_norm, ffn_norm;  // [dim]
  Matrix q, k, v, out, gate, up, down;
  Matrix router, shared_router;  // [experts, dim], [1, dim], of a mixture of experts
  std::vector<ExpertTensors> experts;
  ExpertTensors shared;
  std::vector<double> q_bias, k_bias, v_bias;         // or empty
  std::vector<double> q_norm, k_norm;                 // [head_dim], or empty
  std::vector<double> post_attn_norm, post_ffn_norm;  // [dim], or empty
};

struct Weights {
  std::shared_ptr<const GgufFile> file;
  Hyperparameters hp;
  Matrix embedding;  // [vocab, dim]
  Matrix head;       // [vocab, dim], the embedding when tied
  std::vector<double> final_norm;
  std::vector<LayerTensors> layers;
  std::vector<std::shared_ptr<const GgufFile>> adapters;  // what changes lie in
};

// Throws Error for an architecture without a reference, or a file that lacks a tensor.
Weights ReadWeights(std::shared_ptr<const GgufFile> file);

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_REFERENCE_WEIGHTS_H_
