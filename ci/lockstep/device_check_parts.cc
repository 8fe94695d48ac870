#include <fmt/format.h>

#include "ci/lockstep/device_check.h"
#include "reports/device_limits.h"

namespace lockstep::cli {
namespace {

std::vector<DeviceCheckRow> Describe(const DeviceCheckInput& input) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  return {{.part = "device",
           .verdict = "ok",
           .what = input.device->Description(),
           .value = static_cast<double>(input.device->FreeBytes()) / kGiB,
           .unit = "GiB free"}};
}

std::vector<DeviceCheckRow> Limits(const DeviceCheckInput& input) {
  Device& device = *input.device;
  const DeviceLimits limits =
      MeasureDeviceLimits(device, DeviceLimitOptionsFor(device, input.simulated));
  const std::string verdict = limits.right ? "ok" : "FAILED";
  const std::string by = limits.device_clock ? "" : ", by the host's clock";
  const auto row = [&](std::string what, double value, std::string unit) {
    return DeviceCheckRow{.part = "limits",
                          .verdict = verdict,
                          .what = what + by,
                          .value = value,
                          .unit = std::move(unit)};
  };
  return {row("copy, read and written", limits.copy_bytes_per_second / 1e9, "GB/s"),
          row("F32 multiply-adds", limits.fmas_per_second / 1e9, "G/s"),
          row("8-bit products", limits.products_per_second / 1e9, "G/s")};
}

}  // namespace

const std::vector<DeviceCheckPart>& DeviceCheckParts() {
  static const std::vector<DeviceCheckPart> parts = {
      {"device", Describe},
      {"limits", Limits},
      {"parity-presets", CheckPresetParity},
      {"parity-135m", CheckSmallParity},
      {"speed-135m", MeasureSmallSpeed},
      {"parity-1b", CheckLargeParity},
      {"speed-1b", MeasureLargeSpeed},
  };
  return parts;
}

}  // namespace lockstep::cli
