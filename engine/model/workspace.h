// Scratch of one forward workspace: grows to the largest step it has seen, then never allocates.
#ifndef LOCKSTEP_ENGINE_MODEL_WORKSPACE_H_
#define LOCKSTEP_ENGINE_MODEL_WORKSPACE_H_

#include <cstdint>
#include <optional>

#include "caches/aligned_buffer.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "engine/model.h"

namespace lockstep {

class Workspace {
 public:
  explicit Workspace(const ModelConfig& config);

  // Room for steps of `tokens` tokens. What the buffers held is lost when they grow.
  void ReserveTokens(int32_t tokens);
  // Room for the logits of `sequences` sequences.
  void ReserveSequences(int32_t sequences) {
    if (sequences <= sequences_) return;
    logits = AlignedBuffer<float>(int64_t{sequences} * config_.vocab_size);
    sequences_ = sequences;
  }
  // Room for positions below `positions`: attention scores and RoPE angles.
  void ReservePositions(int32_t positions);

  const RopeTable& rope() const { return *rope_; }

  // [tokens, width] each, row after row.
  AlignedBuffer<float> residual;   // dim
  AlignedBuffer<float> normed;     // dim
  AlignedBuffer<float> query;      // q_dim
  AlignedBuffer<float> key;        // kv_dim; unused where the cache grants a slot
  AlignedBuffer<float> value;      // kv_dim; the same
  AlignedBuffer<float> attention;  // q_dim
  AlignedBuffer<float> gate;       // ffn_dim
  AlignedBuffer<float> up;         // ffn_dim
  AlignedBuffer<float> projected;  // dim, what a sublayer adds to the residual

  // The Q8 form of the current matmul input, for quantized weights.
  AlignedBuffer<ActivationBlock> blocks;  // [tokens, widest input / 32]

  AlignedBuffer<float> scratch;  // of attention
  AlignedBuffer<float> final;    // [dim], the last token's normed residual
  AlignedBuffer<float> logits;   // [sequences, vocab_size]

 private:
  const ModelConfig& config_;
  int32_t tokens_ = 0;
  int32_t positions_ = 0;
  int32_t sequences_ = 1;
  std::optional<RopeTable> rope_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_WORKSPACE_H_
