// What the decorators put between an engine on a device and a cache: the device side of
// UpdateOnlyCache and of CountingCache (decorators.h).
#ifndef LOCKSTEP_ORACLE_DEVICE_DECORATORS_H_
#define LOCKSTEP_ORACLE_DEVICE_DECORATORS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "caches/device_kv.h"
#include "caches/kv_cache.h"

namespace lockstep {

// Forwards everything to the device side of a cache, asked anew for each layer: what holds a layer
// may differ from layer to layer. The cache outlives it.
class ForwardingDeviceKv : public DeviceKv {
 public:
  explicit ForwardingDeviceKv(KvCache& inner) : inner_(inner) {}

  Device& device() override;  // REQUIRES: the cache has a layer on a device
  DeviceKvSlot RowsOnDevice(int32_t layer) const override;
  std::optional<DeviceKvSlot> TryReserveDeviceSlot(int32_t layer,
                                                   std::span<const int32_t> positions,
                                                   DeviceStream& stream) override;
  void CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                        DeviceStream& stream) override;
  void UpdateOnDevice(int32_t layer, std::span<const int32_t> positions, Global<const float> keys,
                      Global<const float> values, DeviceStream& stream) override;
  DeviceKvView ViewOnDevice(int32_t layer, std::span<const int32_t> positions,
                            DeviceStream& stream) override;

 protected:
  KvCache& cache() { return inner_; }

 private:
  DeviceKv& At(int32_t layer) const;  // REQUIRES: the layer lies on a device

  KvCache& inner_;
};

// Refuses every run, so that rows go through UpdateOnDevice: the legacy path of an engine on a
// device.
class UpdateOnlyDeviceKv final : public ForwardingDeviceKv {
 public:
  using ForwardingDeviceKv::ForwardingDeviceKv;

  // A layer outside the cache still throws [R1].
  std::optional<DeviceKvSlot> TryReserveDeviceSlot(int32_t layer,
                                                   std::span<const int32_t> positions,
                                                   DeviceStream& stream) override;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_DEVICE_DECORATORS_H_
