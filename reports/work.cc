#include "reports/work.h"

#include <algorithm>

#include "caches/check.h"

namespace lockstep {
namespace {

void AddMatrix(const PackedMatrix& matrix, double uses, double reads, Work* work) {
  const double elements = static_cast<double>(matrix.rows()) * matrix.cols();
  const auto traits = TraitsOf(matrix.type());
  LS_CHECK(traits.has_value(), "weights of type {}", static_cast<uint32_t>(matrix.type()));
  work->bytes += reads * elements / static_cast<double>(traits->block_elements) *
                 static_cast<double>(traits->block_bytes);
  (matrix.quantized() ? work->dot_multiply_adds : work->fma_multiply_adds) += uses * elements;
}

// Each token uses its share of the experts, and a step reads those that any token uses: all of them
// where that could be.
void AddFfn(const ModelConfig& config, const LayerWeights& layer, double tokens, double steps,
            Work* work) {
  const auto add = [&](const PackedMatrix& gate, const PackedMatrix& up, const PackedMatrix& down,
                       double uses, double reads) {
    for (const PackedMatrix* matrix : {&gate, &up, &down}) AddMatrix(*matrix, uses, reads, work);
  };
  if (config.num_experts == 0) return add(layer.w_gate, layer.w_up, layer.w_down, tokens, steps);
  AddMatrix(layer.moe.router, tokens, steps, work);
  // Experts are parts of one tensor: of one size and type.
  const ExpertWeights& expert = layer.moe.experts.front();
  const double uses = tokens * config.experts_used;
  add(expert.gate, expert.up, expert.down, uses, std::min(uses, steps * config.num_experts));
  if (config.shared_dim == 0) return;
  AddMatrix(layer.moe.shared_router, tokens, steps, work);
  const ExpertWeights& shared = layer.moe.shared;
  add(shared.gate, shared.up, shared.down, tokens, steps);
}

// All matrices, used by `tokens` tokens in `steps` steps; logits once a step.
void AddWeights(const Model& model, double tokens, double steps, Work* work) {
  for (const LayerWeights& layer : model.layers()) {
    for (const PackedMatrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo}) {
      AddMatrix(*matrix, tokens, steps, work);
    }
    AddFfn(model.config(), layer, tokens, steps, work);
  }
  AddMatrix(model.output(), steps, steps, work);
}

// Rows that the queries at positions [0, count) see, or the last of them alone, summed over layers.
struct VisibleRows {
  double all = 0;
  double last = 0;
};

VisibleRows VisibleTo(const ModelConfig& config, double count) {
  VisibleRows rows;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const double window = config.window_of(layer) > 0 ? config.window_of(layer) : count;
    rows.last += std::min(count, window);
    const double growing = std::min(count, window);
    rows.all += growing * (growing + 1) / 2 + (count - growing) * window;
  }
  return rows;
}

double AttentionMultiplyAdds(const Model& model, double rows) {
  return 2.0 * model.config().q_dim() * rows;
}

}  // namespace

Work PrefillWork(const Model& model, int32_t tokens, int32_t step_tokens) {
  LS_CHECK(tokens > 0 && step_tokens > 0, "{} tokens in steps of {}", tokens, step_tokens);
  Work work;
  const int32_t steps = (tokens - 1) / step_tokens + 1;
  AddWeights(model, tokens, steps, &work);
  work.fma_multiply_adds += AttentionMultiplyAdds(model, VisibleTo(model.config(), tokens).all);
  return work;
}

Work DecodeWork(const Model& model, const RowTypes& rows, int32_t depth) {
  Work work;
  AddWeights(model, 1, 1, &work);
  const double visible = VisibleTo(model.config(), depth + 1.0).last;
  const auto row_bytes =
      RowBytes(rows.keys, model.config().kv_dim()) + RowBytes(rows.values, model.config().kv_dim());
  work.bytes += visible * static_cast<double>(row_bytes);
  work.fma_multiply_adds += AttentionMultiplyAdds(model, visible);
  return work;
}

}  // namespace lockstep
