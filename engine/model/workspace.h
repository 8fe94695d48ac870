// Scratch of one forward workspace: grows to the largest step it has seen, then never allocates.
#ifndef LOCKSTEP_ENGINE_MODEL_WORKSPACE_H_
#define LOCKSTEP_ENGINE_MODEL_WORKSPACE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "caches/aligned_buffer.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/model.h"

namespace lockstep {

// Rows of one width, and a pointer to each, as the kernels take their outputs.
struct RowBuffer {
  RowBuffer() = default;
  RowBuffer(int64_t rows, int64_t row_width);

  float* row(int64_t index) { return values.data() + index * width; }
  std::span<float> Rows(int64_t first, int64_t count) {
    return values.span().subspan(static_cast<size_t>(first * width),
                                 static_cast<size_t>(count * width));
  }

  int64_t width = 0;
  AlignedBuffer<float> values;  // [rows, width]
  std::vector<float*> rows;
};

class Workspace {
 public:
  explicit Workspace(const ModelConfig& config) : config_(config) {}

  // Room for steps of `tokens` rows. What the buffers held is lost when they grow.
  void ReserveTokens(int32_t tokens);
  // Room for so many rows whose logits are wanted, and for their logits.
  void ReserveOutputs(int32_t outputs);
  void ReserveLogits(int32_t outputs);
  // Room for adapters of rank `rank` in steps of `tokens` rows; of rank 0, none.
  void ReserveAdapters(int32_t tokens, int32_t rank);
  // Room for the angles of positions below `positions`.
  void ReservePositions(int32_t positions);

  // The angles of that layer.
  const RopeTable& rope(int32_t layer) const {
    return local_rope_ && config_.is_local(layer) ? *local_rope_ : *rope_;
  }

  // One row a token.
  RowBuffer residual;   // [tokens, dim]
  RowBuffer normed;     // [tokens, dim]
  RowBuffer query;      // [tokens, q_dim]
  RowBuffer key;        // [tokens, kv_dim], used where the cache grants no slot
  RowBuffer value;      // the same
  RowBuffer attention;  // [tokens, q_dim]
  RowBuffer gate;       // [tokens, ffn_dim]
  RowBuffer up;         // [tokens, ffn_dim]
  RowBuffer projected;  // [tokens, dim], what a sublayer adds to the residual

  std::vector<float*> key_rows;  // [tokens], where a layer's K rows are computed: slot or scratch
  std::vector<float*> value_rows;
  std::vector<int32_t> positions;  // [tokens]
  std::vector<int32_t> visible;    // [tokens], rows that each query sees

  // Matmul inputs quantized. Two, because the gate writes one while it reads the other.
  AlignedBuffer<ActivationBlock> input;   // [tokens, the larger of dim and q_dim / 32]
  AlignedBuffer<ActivationBlock> hidden;  // [tokens, ffn_dim / 32]

  // Of an adapter: A x, rows of its rank with nothing between them, and then B (A x).
  AlignedBuffer<float> low_rank;      // [tokens, rank]
  std::vector<float*> low_rank_rows;  // [tokens]
  RowBuffer delta;                    // [tokens, the widest of a layer's outputs]

  // One row a token whose logits are wanted.
  RowBuffer final;                             // [outputs, dim], normed
  AlignedBuffer<ActivationBlock> final_input;  // [outputs, dim / 32]
  RowBuffer logits;                            // [outputs, vocab_size]

 private:
  const ModelConfig& config_;
  int32_t tokens_ = 0;
  int32_t positions_ = 0;
  int32_t adapter_tokens_ = 0;
  int32_t adapter_rank_ = 0;
  int32_t outputs_ = 0;
  int32_t logits_ = 0;
  std::optional<RopeTable> rope_;
  std::optional<RopeTable> local_rope_;  // where local layers have their own
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_WORKSPACE_H_
