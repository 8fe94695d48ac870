#include "oracle/device_decorators.h"

#include "caches/check.h"
#include "caches/kv_checks.h"

namespace lockstep {

DeviceKv& ForwardingDeviceKv::At(int32_t layer) const {
  DeviceKv* device = inner_.device_kv(layer);
  LS_CHECK(device != nullptr, "layer {} of {} is not on a device", layer, inner_.name());
  return *device;
}

Device& ForwardingDeviceKv::device() {
  DeviceKv* first = nullptr;
  for (int32_t layer = 0; layer < inner_.geometry().num_layers && first == nullptr; ++layer) {
    first = inner_.device_kv(layer);
  }
  LS_CHECK(first != nullptr, "no layer of {} is on a device", inner_.name());
  return first->device();
}

DeviceKvSlot ForwardingDeviceKv::RowsOnDevice(int32_t layer) const {
  return At(layer).RowsOnDevice(layer);
}

std::optional<DeviceKvSlot> ForwardingDeviceKv::TryReserveDeviceSlot(
    int32_t layer, std::span<const int32_t> positions, DeviceStream& stream) {
  return At(layer).TryReserveDeviceSlot(layer, positions, stream);
}

void ForwardingDeviceKv::CommitDeviceSlot(int32_t layer, std::span<const int32_t> positions,
                                          DeviceStream& stream) {
  At(layer).CommitDeviceSlot(layer, positions, stream);
}

void ForwardingDeviceKv::UpdateOnDevice(int32_t layer, std::span<const int32_t> positions,
                                        Global<const float> keys, Global<const float> values,
                                        DeviceStream& stream) {
  At(layer).UpdateOnDevice(layer, positions, keys, values, stream);
}

DeviceKvView ForwardingDeviceKv::ViewOnDevice(int32_t layer, std::span<const int32_t> positions,
                                              DeviceStream& stream) {
  return At(layer).ViewOnDevice(layer, positions, stream);
}

std::optional<DeviceKvSlot> UpdateOnlyDeviceKv::TryReserveDeviceSlot(int32_t layer,
                                                                     std::span<const int32_t>,
                                                                     DeviceStream& /*stream*/) {
  CheckLayer(cache().geometry(), layer);
  return std::nullopt;
}

}  // namespace lockstep
