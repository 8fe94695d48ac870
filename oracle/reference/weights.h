// Weights of a llama model as exact doubles, read from the GGUF file row by row.
#ifndef LOCKSTEP_ORACLE_REFERENCE_WEIGHTS_H_
#define LOCKSTEP_ORACLE_REFERENCE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/gguf.h"

namespace lockstep::oracle {

// A weight matrix [rows, cols] where it lies in the file.
class Matrix {
 public:
  Matrix() = default;
  Matrix(const GgufFile& file, const std::string& name, int64_t rows, int64_t cols);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  bool quantized() const { return type_ == GgmlType::kQ8_0 || type_ == GgmlType::kQ4_0; }
  void Row(int64_t row, std::vector<double>* values) const;  // [cols]

 private:
  GgmlType type_ = GgmlType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  std::span<const std::byte> data_;
};

struct Hyperparameters {
  int64_t dim = 0, ffn_dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, rope_dim = 0;
  int64_t vocab = 0;
  double rope_theta = 0;
  double eps = 0;  // as binary32
};

struct LayerTensors {
  std::vector<double> attn_norm, ffn_norm;  // [dim]
  Matrix q, k, v, out, gate, up, down;
  std::vector<double> q_bias, k_bias, v_bias;  // or empty
  std::vector<double> q_norm, k_norm;          // [head_dim], or empty
};

struct Weights {
  std::shared_ptr<const GgufFile> file;
  Hyperparameters hp;
  Matrix embedding;  // [vocab, dim]
  Matrix head;       // [vocab, dim], the embedding when tied
  std::vector<double> final_norm;
  std::vector<LayerTensors> layers;
};

// Throws Error for a file that is no llama model, or lacks a tensor.
Weights ReadWeights(std::shared_ptr<const GgufFile> file);

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_REFERENCE_WEIGHTS_H_
