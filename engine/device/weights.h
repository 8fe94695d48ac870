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
  Global<const float> all() const {
    return buffer_.empty() ? Global<const float>{} : Global<const float>(buffer_.all());
  }

 private:
  DeviceBuffer<float> buffer_;
};

// A PackedMatrix with its memory.
class UploadedMatrix {
 public:
  UploadedMatrix(Device& device, DeviceStream& stream, const PackedMatrix& matrix);
  const DeviceMatrix& matrix() const { return matrix_; }
  bool quantized() const { return matrix_.quantized(); }

 private:
  DeviceBuffer<uint8_t> buffer_;
  DeviceMatrix matrix_;
};

struct DeviceLayer {
  DeviceLayer(Device& device, DeviceStream& stream, const LayerWeights& host);

  DeviceFloats attn_norm;
  UploadedMatrix wq, wk, wv;
  DeviceFloats bq, bk, bv;
  DeviceFloats q_norm, k_norm;
  UploadedMatrix wo;
  DeviceFloats ffn_norm;
  UploadedMatrix w_gate, w_up, w_down;
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
