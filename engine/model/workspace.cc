#include "engine/model/workspace.h"

#include <algorithm>

namespace lockstep {

RowBuffer::RowBuffer(int64_t row_count, int64_t row_width)
    : width(row_width), values(row_count * row_width), rows(static_cast<size_t>(row_count)) {
  for (int64_t i = 0; i < row_count; ++i) rows[static_cast<size_t>(i)] = row(i);
}

void Workspace::ReserveTokens(int32_t tokens) {
  if (tokens <= tokens_) return;
  // Zero until all have grown: after an allocation that failed half way, the next call starts anew.
  tokens_ = 0;
  const auto count = static_cast<size_t>(tokens);
  residual = RowBuffer(tokens, config_.dim);
  normed = RowBuffer(tokens, config_.dim);
  query = RowBuffer(tokens, config_.q_dim());
  key = RowBuffer(tokens, config_.kv_dim());
  value = RowBuffer(tokens, config_.kv_dim());
  attention = RowBuffer(tokens, config_.q_dim());
  // Experts have room of their own.
  const int32_t ffn_dim = config_.num_experts > 0 ? 0 : config_.ffn_dim;
  gate = RowBuffer(tokens, ffn_dim);
  up = RowBuffer(tokens, ffn_dim);
  projected = RowBuffer(tokens, config_.dim);
  key_rows.resize(count);
  value_rows.resize(count);
  positions.resize(count);
  visible.resize(count);
  const int64_t widest = std::max(config_.dim, config_.q_dim());
  input = AlignedBuffer<ActivationBlock>(tokens * (widest / 32));
  hidden = AlignedBuffer<ActivationBlock>(tokens * int64_t{ffn_dim / 32});
  tokens_ = tokens;
}

void Workspace::ReserveOutputs(int32_t outputs) {
  if (outputs <= outputs_) return;
  outputs_ = 0;
  final = RowBuffer(outputs, config_.dim);
  final_input = AlignedBuffer<ActivationBlock>(outputs * int64_t{config_.dim / 32});
  outputs_ = outputs;
}

void Workspace::ReserveLogits(int32_t outputs) {
  if (outputs <= logits_) return;
  logits_ = 0;
  logits = RowBuffer(outputs, config_.vocab_size);
  logits_ = outputs;
}

void Workspace::ReserveAdapters(int32_t tokens, int32_t rank) {
  if (rank == 0 || (tokens <= adapter_tokens_ && rank <= adapter_rank_)) return;
  const int32_t room_tokens = std::max(tokens, adapter_tokens_);
  const int32_t room_rank = std::max(rank, adapter_rank_);
  adapter_tokens_ = 0;
  low_rank = AlignedBuffer<float>(int64_t{room_tokens} * room_rank);
  low_rank_rows.resize(static_cast<size_t>(room_tokens));
  delta = RowBuffer(room_tokens, std::max({config_.dim, config_.q_dim(), config_.ffn_dim}));
  adapter_tokens_ = room_tokens;
  adapter_rank_ = room_rank;
}

void Workspace::ReservePositions(int32_t positions_needed) {
  if (positions_needed <= positions_) return;
  rope_.emplace(config_.rope, positions_needed);
  if (config_.local_rope) local_rope_.emplace(*config_.local_rope, positions_needed);
  positions_ = positions_needed;
}

}  // namespace lockstep
