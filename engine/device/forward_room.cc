// Memory of the forward pass on a device: grows to the largest step that it has seen.
#include <algorithm>

#include "engine/device/forward.h"

namespace lockstep::device {

int32_t DeviceForward::RoundedPositions(int32_t positions) {
  int32_t rounded = 256;
  while (rounded < positions) rounded *= 2;
  return rounded;
}

void DeviceForward::Reserve(int32_t rows, int32_t outputs, int32_t positions) {
  // Each: no room as long as not all have grown.
  if (rows > rows_room_) {
    rows_room_ = 0;
    ReserveRows(rows);
    rows_room_ = rows;
  }
  if (outputs > outputs_room_) {
    outputs_room_ = 0;
    ReserveOutputs(outputs);
    outputs_room_ = outputs;
  }
  if (positions > positions_room_) {
    positions_room_ = 0;
    ReservePositions(positions);
    positions_room_ = positions;
  }
}

void DeviceForward::ReserveAdapters(int32_t rows, int32_t rank) {
  if (adapters_.Reserve(rows, rank)) graphs_.clear();
}

void DeviceForward::ReserveRows(int32_t rows) {
  const int64_t n = rows;
  graphs_.clear();
  tokens_ = DeviceBuffer<int32_t>(*device_, n);
  positions_ = DeviceBuffer<int32_t>(*device_, n);
  exact_first_ = DeviceBuffer<int32_t>(*device_, n * config_.num_layers);
  host_exact_first_.assign(static_cast<size_t>(exact_first_.size()), 0);
  residual_ = DeviceBuffer<float>(*device_, n * config_.dim);
  normed_ = DeviceBuffer<float>(*device_, n * config_.dim);
  query_ = DeviceBuffer<float>(*device_, n * config_.q_dim());
  key_ = DeviceBuffer<float>(*device_, n * config_.kv_dim());
  key_rows_ = DeviceBuffer<float>(*device_, n * config_.kv_dim());
  value_ = DeviceBuffer<float>(*device_, n * config_.kv_dim());
  attention_ = DeviceBuffer<float>(*device_, n * config_.q_dim());
  projected_ = DeviceBuffer<float>(*device_, n * config_.dim);
  if (config_.num_experts > 0) experts_.Reserve(*device_, rows);
  gate_ = DeviceBuffer<float>(*device_, n * config_.ffn_dim);
  up_ = DeviceBuffer<float>(*device_, n * config_.ffn_dim);
  blocks_ = DeviceBuffer<uint8_t>(*device_,
                                  QuantizedBytes(n, std::max(config_.dim, config_.q_dim())) + 1);
  hidden_blocks_ = DeviceBuffer<uint8_t>(*device_, QuantizedBytes(n, config_.ffn_dim) + 1);
}

void DeviceForward::ReserveOutputs(int32_t outputs) {
  graphs_.clear();
  final_ = DeviceBuffer<float>(*device_, int64_t{outputs} * config_.dim);
  final_blocks_ = DeviceBuffer<uint8_t>(*device_, QuantizedBytes(outputs, config_.dim) + 1);
  logits_ = DeviceBuffer<float>(*device_, int64_t{outputs} * config_.vocab_size);
  best_ = DeviceBuffer<int32_t>(*device_, 1);
  best_scratch_ = DeviceBuffer<int32_t>(*device_, ArgMaxScratch(1, config_.vocab_size));
}

void DeviceForward::ReservePositions(int32_t positions) {
  graphs_.clear();
  scratch_ =
      DeviceBuffer<float>(*device_, AttentionScratch(shape_, 16, RoundedPositions(positions)));
  rope_ = AnglesOf(config_.rope, positions);
  if (config_.local_rope) local_rope_ = AnglesOf(*config_.local_rope, positions);
}

DeviceForward::Angles DeviceForward::AnglesOf(const RopeFrequencies& frequencies,
                                              int32_t positions) {
  const RopeTable rope(frequencies, positions);
  std::vector<float> cos, sin;
  for (int32_t position = 0; position < positions; ++position) {
    cos.insert(cos.end(), rope.cos(position).begin(), rope.cos(position).end());
    sin.insert(sin.end(), rope.sin(position).begin(), rope.sin(position).end());
  }
  const auto entries = static_cast<int64_t>(cos.size());
  Angles angles = {DeviceBuffer<float>(*device_, entries), DeviceBuffer<float>(*device_, entries)};
  stream_->Upload(cos.data(), angles.cos.address(), entries * 4);
  stream_->Upload(sin.data(), angles.sin.address(), entries * 4);
  stream_->Synchronize();
  return angles;
}

}  // namespace lockstep::device
