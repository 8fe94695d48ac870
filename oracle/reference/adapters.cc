#include "oracle/reference/adapters.h"

#include <fmt/format.h>

#include <cmath>

#include "oracle/reference/rounding.h"

namespace lockstep::oracle {
namespace {

// What one adapter changes in one layer; `scaled`: with its alpha / rank.
void ReadChanges(const ReferenceAdapter& adapter, bool scaled, int64_t layer,
                 LayerTensors* tensors) {
  const GgufFile& file = *adapter.file;
  const double alpha = file.RequireFloat("adapter.lora.alpha");
  const std::pair<const char*, Matrix*> matrices[] = {
      {"attn_q", &tensors->q},        {"attn_k", &tensors->k},      {"attn_v", &tensors->v},
      {"attn_output", &tensors->out}, {"ffn_gate", &tensors->gate}, {"ffn_up", &tensors->up},
      {"ffn_down", &tensors->down}};
  for (const auto& [suffix, matrix] : matrices) {
    const std::string name = fmt::format("blk.{}.{}.weight.lora_", layer, suffix);
    const GgufTensor* a = file.FindTensor(name + "a");
    if (a == nullptr) continue;
    const int64_t rank = a->shape.at(1);
    const bool plain = alpha == 0 || !scaled;
    Change change;
    change.a = Matrix(file, name + "a", rank, matrix->cols());
    change.b = Matrix(file, name + "b", matrix->rows(), rank);
    change.scale = adapter.scale * (plain ? 1.0 : alpha / static_cast<double>(rank));
    matrix->changes.push_back(std::move(change));
  }
}

}  // namespace

Weights ReadAdaptedWeights(std::shared_ptr<const GgufFile> file, const ReferenceOptions& options) {
  Weights weights = ReadWeights(std::move(file));
  const bool scaled = options.fault != ReferenceFault::kUnscaledPairs;
  for (const ReferenceAdapter& adapter : options.adapters) {
    for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
      ReadChanges(adapter, scaled, static_cast<int64_t>(layer), &weights.layers[layer]);
    }
    weights.adapters.push_back(adapter.file);
  }
  return weights;
}

void AddChanges(const Matrix& w, const Rows& x, Rows* y) {
  std::vector<double> weights;
  for (const Change& change : w.changes) {
    const Rows low = MatMul(change.a, x, Codes::kNone);
    Rows delta = MatMul(change.b, low, Codes::kNone);
    for (int64_t r = 0; r < change.b.rows(); ++r) {
      change.b.Row(r, &weights);
      for (int64_t t = 0; t < x.n; ++t) {
        for (int64_t k = 0; k < low.width; ++k) {
          delta.bound(t)[r] += std::fabs(weights[static_cast<size_t>(k)]) * low.bound(t)[k];
        }
      }
    }
    delta = Scaled(change.scale, std::move(delta));
    for (size_t i = 0; i < y->values.size(); ++i) {
      y->values[i] += delta.values[i];
      y->bounds[i] += delta.bounds[i] + kUnit * std::fabs(y->values[i]) * kSecondOrder;
    }
  }
}

}  // namespace lockstep::oracle
