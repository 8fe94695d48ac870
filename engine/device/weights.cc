#include "engine/device/weights.h"

namespace lockstep::device {
namespace {

DeviceBuffer<uint8_t> UploadBytes(Device& device, DeviceStream& stream,
                                  std::span<const std::byte> bytes) {
  DeviceBuffer<uint8_t> buffer(device, static_cast<int64_t>(bytes.size()));
  stream.Upload(bytes.data(), buffer.address(), buffer.size());
  return buffer;
}

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

UploadedMatrix::UploadedMatrix(Device& device, DeviceStream& stream, const PackedMatrix& matrix)
    : buffer_(UploadBytes(device, stream, BytesOf(matrix))),
      matrix_{matrix.type(), matrix.rows(), matrix.cols(), buffer_.all()} {}

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
      ffn_norm(device, stream, host.ffn_norm),
      w_gate(device, stream, host.w_gate),
      w_up(device, stream, host.w_up),
      w_down(device, stream, host.w_down) {}

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
