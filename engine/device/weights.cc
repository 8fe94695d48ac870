#include "engine/device/weights.h"

#include <array>

#include "caches/check.h"

namespace lockstep::device {
namespace {

std::span<const std::byte> BytesOf(const PackedMatrix& matrix) {
  return {matrix.data(), static_cast<size_t>(PackedMatrix::PackedBytes(matrix.type(), matrix.rows(),
                                                                       matrix.cols()))};
}

}  // namespace

DeviceFloats::DeviceFloats(Device& device, DeviceStream& stream, std::span<const float> values) {
  if (values.empty()) return;
  buffer_ = DeviceBuffer<float>(device, static_cast<int64_t>(values.size()));
  stream.Upload(values.data(), buffer_.address(), static_cast<int64_t>(values.size_bytes()));
}

UploadedMatrix::UploadedMatrix(Device& device, DeviceStream& stream,
                               std::span<const PackedMatrix* const> matrices) {
  const PackedMatrix& first = *matrices.front();
  if (first.rows() == 0) return;
  const auto each = static_cast<int64_t>(BytesOf(first).size());
  buffer_ = DeviceBuffer<uint8_t>(device, each * std::ssize(matrices));
  int64_t at = 0;
  for (const PackedMatrix* matrix : matrices) {
    LS_CHECK(matrix->type() == first.type() && matrix->rows() == first.rows() &&
                 matrix->cols() == first.cols(),
             "matrices of {} x {} and {} x {}", first.rows(), first.cols(), matrix->rows(),
             matrix->cols());
    stream.Upload(matrix->data(), buffer_.address(at), each);
    at += each;
  }
  matrix_ = {.type = first.type(),
             .rows = first.rows(),
             .cols = first.cols(),
             .bytes = buffer_.all(),
             .count = static_cast<int32_t>(matrices.size())};
}

UploadedMatrix::UploadedMatrix(Device& device, DeviceStream& stream, const PackedMatrix& matrix)
    : UploadedMatrix(device, stream, std::array{&matrix}) {}

DeviceMoe::DeviceMoe(Device& device, DeviceStream& stream, const MoeWeights& host)
    : router(device, stream, host.router),
      shared_router(device, stream, host.shared_router),
      shared_gate(device, stream, host.shared.gate),
      shared_up(device, stream, host.shared.up),
      shared_down(device, stream, host.shared.down) {
  if (host.experts.empty()) return;
  const auto all = [&](PackedMatrix ExpertWeights::*of) {
    std::vector<const PackedMatrix*> matrices;
    for (const ExpertWeights& expert : host.experts) matrices.push_back(&(expert.*of));
    return UploadedMatrix(device, stream, matrices);
  };
  gate = all(&ExpertWeights::gate);
  up = all(&ExpertWeights::up);
  down = all(&ExpertWeights::down);
}

DeviceLayer::DeviceLayer(Device& device, DeviceStream& stream, const LayerWeights& host)
    : attn_norm(device, stream, host.attn_norm),
      wq(device, stream, host.wq),
      wk(device, stream, host.wk),
      wv(device, stream, host.wv),
      bq(device, stream, host.bq),
      bk(device, stream, host.bk),
      bv(device, stream, host.bv),
      q_norm(device, stream, host.q_norm),
      k_norm(device, stream, host.k_norm),
      wo(device, stream, host.wo),
      post_attn_norm(device, stream, host.post_attn_norm),
      ffn_norm(device, stream, host.ffn_norm),
      w_gate(device, stream, host.w_gate),
      w_up(device, stream, host.w_up),
      w_down(device, stream, host.w_down),
      post_ffn_norm(device, stream, host.post_ffn_norm),
      moe(device, stream, host.moe) {}

DeviceEnds::DeviceEnds(Device& device, DeviceStream& stream, const Model& model)
    : output_norm(device, stream, model.output_norm()), output(device, stream, model.output()) {
  const ModelConfig& config = model.config();
  if (config.tied_head) return;
  const GgufTensor& table = model.token_embedding();
  const PackedMatrix packed(table.type, config.vocab_size, config.dim, table.data);
  own_embedding.emplace(device, stream, packed);
  stream.Synchronize();  // `packed` was read
}

DeviceWeights::DeviceWeights(Device& device, DeviceStream& stream, const Model& model,
                             int32_t count) {
  layers.reserve(static_cast<size_t>(count));
  for (int32_t layer = 0; layer < count; ++layer) {
    layers.emplace_back(device, stream, model.layers()[static_cast<size_t>(layer)]);
  }
  if (count == model.config().num_layers) ends.emplace(device, stream, model);
  stream.Synchronize();
}

}  // namespace lockstep::device
