#include "engine/model/workspace.h"

#include <algorithm>

namespace lockstep {

Workspace::Workspace(const ModelConfig& config)
    : final(config.dim), logits(config.vocab_size), config_(config) {}

void Workspace::ReserveTokens(int32_t tokens) {
  if (tokens <= tokens_) return;
  const auto rows = [&](int64_t width) { return AlignedBuffer<float>(tokens * width); };
  // Zero until all have grown: after an allocation that failed half way, the next call starts anew.
  tokens_ = 0;
  residual = rows(config_.dim);
  normed = rows(config_.dim);
  query = rows(config_.q_dim());
  key = rows(config_.kv_dim());
  value = rows(config_.kv_dim());
  attention = rows(config_.q_dim());
  gate = rows(config_.ffn_dim);
  up = rows(config_.ffn_dim);
  projected = rows(config_.dim);
  const int64_t widest = std::max({config_.dim, config_.q_dim(), config_.ffn_dim});
  blocks = AlignedBuffer<ActivationBlock>(tokens * (widest / 32));
  tokens_ = tokens;
}

void Workspace::ReservePositions(int32_t positions) {
  if (positions <= positions_) return;
  scratch = AlignedBuffer<float>(
      AttentionScratch({config_.num_heads, config_.num_kv_heads, config_.head_dim}, positions));
  rope_.emplace(config_.rope_dim, config_.rope_theta, positions);
  positions_ = positions;
}

}  // namespace lockstep
