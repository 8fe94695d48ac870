// The weights of a model's first layers, and of its two ends, on a device: as the host has packed
// them, uploaded once.
#ifndef LOCKSTEP_ENGINE_DEVICE_WEIGHTS_H_
#define LOCKSTEP_ENGINE_DEVICE_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "caches/device.h"
#include "engine/device/kernels.h"
#include "engine/model.h"

namespace lockstep::device {

// Floats on the device, or none.
class DeviceFloats {
 public:
  DeviceFloats() = default;
  DeviceFloats(Device& device, DeviceStream& stream, std::span<const float> values);
  bool empty() const { return buffer_.empty(); }
  Global<const float> all() const {
    return buffer_.empty() ? Global<const float>{} : Global<const float>(buffer_.all());
  }

 private:
  DeviceBuffer<float> buffer_;
};

// A PackedMatrix with its memory, several of one type and shape, or none where the model has none.
class UploadedMatrix {
 public:
  UploadedMatrix() = default;
  UploadedMatrix(Device& device, DeviceStream& stream, const PackedMatrix& matrix);
  UploadedMatrix(Device& device, DeviceStream& stream,
                 std::span<const PackedMatrix* const> matrices);
  const DeviceMatrix& matrix() const { return matrix_; }
  bool quantized() const { return matrix_.quantized(); }

 private:
  DeviceBuffer<uint8_t> buffer_;
  DeviceMatrix matrix_;
};

// MoeWeights, the experts' matrices one behind the other.
struct DeviceMoe {
  DeviceMoe() = default;
  DeviceMoe(Device& device, DeviceStream& stream, const MoeWeights& host);

  // Whether a matrix that reads the normed rows is quantized.
  bool quantized() const {
    return router.quantized() || gate.quantized() || up.quantized() || shared_router.quantized() ||
           shared_gate.quantized() || shared_up.quantized();
  }

  UploadedMatrix router, gate, up, down;
  UploadedMatrix shared_router, shared_gate, shared_up, shared_down;
};

struct DeviceLayer {
  DeviceLayer(Device& device, DeviceStream& stream, const LayerWeights& host);

  DeviceFloats attn_norm;
  UploadedMatrix wq, wk, wv;
  DeviceFloats bq, bk, bv;
  DeviceFloats q_norm, k_norm;
  UploadedMatrix wo;
  DeviceFloats post_attn_norm;
  DeviceFloats ffn_norm;
  UploadedMatrix w_gate, w_up, w_down;
  DeviceFloats post_ffn_norm;
  DeviceMoe moe;
};

// What comes before the first and after the last layer.
struct DeviceEnds {
  DeviceEnds(Device& device, DeviceStream& stream, const Model& model);

  // token_embd, which a tied head shares.
  const DeviceMatrix& embedding() const {
    return own_embedding ? own_embedding->matrix() : output.matrix();
  }

  DeviceFloats output_norm;
  UploadedMatrix output;
  std::optional<UploadedMatrix> own_embedding;  // unless the head is tied
};

struct DeviceWeights {
  // Layers [0, layers), and the ends when these are all. Throws std::bad_alloc, DeviceError.
  DeviceWeights(Device& device, DeviceStream& stream, const Model& model, int32_t layers);

  std::vector<DeviceLayer> layers;
  std::optional<DeviceEnds> ends;
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_WEIGHTS_H_
