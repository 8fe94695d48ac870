// The feed-forward network of a mixture of experts on a device (engine/ARITHMETIC.md 4.8). Which
// experts a row uses is decided there and stays there, so that a step can be recorded as a graph.
//
// Each row multiplies with its experts by itself. In a long prompt the rows of one expert would
// share the reading of its weights if they were sorted by expert first; they are not.
#ifndef LOCKSTEP_ENGINE_DEVICE_EXPERT_FFN_H_
#define LOCKSTEP_ENGINE_DEVICE_EXPERT_FFN_H_

#include <cstdint>

#include "caches/device.h"
#include "engine/device/kernels.h"
#include "engine/device/weights.h"
#include "engine/model.h"

namespace lockstep::device {

// Normed rows of a step, and the same quantized where a matrix that reads them is.
struct NormedRows {
  int32_t count = 0;
  Global<const float> values;    // [count, dim]
  Global<const uint8_t> blocks;  // or {}
};

class DeviceExpertFfn {
 public:
  explicit DeviceExpertFfn(const ModelConfig& config) : config_(config) {}

  // Room for steps of `rows` rows; what the buffers held is lost.
  void Reserve(Device& device, int32_t rows);

  // The router's logits, and which experts each row uses.
  void Route(DeviceStream& stream, const DeviceMoe& w, const NormedRows& x);
  // After Route of the same rows: the experts' hidden rows, then what they add to the residual.
  void Gate(DeviceStream& stream, const DeviceMoe& w, const NormedRows& x);
  void AddTo(DeviceStream& stream, const DeviceMoe& w, int32_t count, Global<float> residual);

  const DeviceBuffer<float>& router() const { return router_; }              // [rows, experts]
  const DeviceBuffer<float>& shared_logit() const { return shared_logit_; }  // [rows]
  const DeviceBuffer<float>& hidden() const { return gate_; }  // [rows, used * expert_dim]
  const DeviceBuffer<float>& shared_hidden() const { return shared_gate_; }  // [rows, shared_dim]

 private:
  bool shared() const { return config_.shared_dim > 0; }
  MatMulArgs Product(const UploadedMatrix& w, const NormedRows& x,
                     const DeviceBuffer<float>& y) const;
  // The same for each of a row's experts.
  MatMulArgs ExpertProduct(const UploadedMatrix& w, const NormedRows& x,
                           const DeviceBuffer<float>& y) const;

  const ModelConfig& config_;
  DeviceBuffer<float> router_, shared_logit_;
  DeviceBuffer<int32_t> chosen_;  // [rows, used]
  DeviceBuffer<float> weights_;   // likewise
  DeviceBuffer<float> gate_, up_, out_;
  DeviceBuffer<uint8_t> blocks_;
  DeviceBuffer<float> shared_gate_, shared_up_, shared_out_;
  DeviceBuffer<uint8_t> shared_blocks_;
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_EXPERT_FFN_H_
