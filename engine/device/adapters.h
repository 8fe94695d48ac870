// LoRA adapters on a device: their matrices, uploaded when a step first applies them, and what they
// add to a projection (engine/ARITHMETIC.md 4.2).
#ifndef LOCKSTEP_ENGINE_DEVICE_ADAPTERS_H_
#define LOCKSTEP_ENGINE_DEVICE_ADAPTERS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "caches/device.h"
#include "engine/adapter.h"
#include "engine/device/weights.h"
#include "engine/model/batch.h"

namespace lockstep::device {

class DeviceAdapters {
 public:
  // Of layers [0, layers). Keeps device and stream.
  DeviceAdapters(Device& device, DeviceStream& stream, int32_t layers)
      : device_(device), stream_(stream), layers_(layers) {}

  // Room for steps of `rows` rows and pairs of rank `rank`. Says whether memory moved, which
  // recorded graphs name.
  bool Reserve(int32_t rows, int32_t rank);

  // Uploads what the pieces apply and is not there yet, and lets go of what nobody but this holds.
  // Throws std::bad_alloc, DeviceError.
  void Prepare(std::span<const StepPiece> pieces);

  // y += what the adapter adds to the matrix's outputs for rows of x, [rows, inputs]. REQUIRES: it
  // was prepared, and changes this matrix.
  void Add(const AppliedAdapter& applied, int32_t layer, AdapterTarget target, int32_t rows,
           Global<const float> x, Global<float> y);

  // A number that no other adapter ever has. REQUIRES: it was prepared.
  int64_t SerialOf(const LoraAdapter& adapter) const { return Find(adapter).serial; }

 private:
  struct Pair {
    UploadedMatrix a, b;
  };
  using Layer = std::array<std::optional<Pair>, kAdapterTargets>;
  struct Uploaded {
    std::weak_ptr<const LoraAdapter> host;  // expired: nobody applies it any more
    const LoraAdapter* address = nullptr;
    int64_t serial = 0;
    std::vector<Layer> layers;
  };

  Uploaded Upload(const std::shared_ptr<const LoraAdapter>& adapter);
  const Uploaded& Find(const LoraAdapter& adapter) const;

  Device& device_;
  DeviceStream& stream_;
  int32_t layers_;
  std::vector<Uploaded> uploaded_;
  int64_t serials_ = 0;
  DeviceBuffer<float> low_rank_;  // A x, rows of a pair's rank with nothing between them
};

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_ADAPTERS_H_
