// What `lockstep device-check` does with a device, part by part.
#ifndef LOCKSTEP_CI_LOCKSTEP_DEVICE_CHECK_H_
#define LOCKSTEP_CI_LOCKSTEP_DEVICE_CHECK_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "caches/device.h"

namespace lockstep::cli {

// A line of the table, an object of the JSON.
struct DeviceCheckRow {
  std::string part;
  std::string verdict;  // "ok", "FAILED", "skipped"
  std::string what;
  double seconds = 0;
  double value = 0;  // in units of `unit`; nothing where that is empty
  std::string unit = {};
};

struct DeviceCheckInput {
  std::shared_ptr<Device> device;
  // On the host executor, with sizes that take it a second or two.
  bool simulated = false;
};

// A part checks or measures one thing. Sizes come from the device's free memory; memory is plain
// DeviceMemory; the card's settings stay as they are. An exception that it throws is a failed row.
struct DeviceCheckPart {
  std::string_view name;
  std::vector<DeviceCheckRow> (*run)(const DeviceCheckInput& input);  // at least one row
};

// device_check_models.cc: the small synthetic models, one of the geometry of SmolLM-135M, one of
// Llama 3.2 1B's.
std::vector<DeviceCheckRow> CheckPresetParity(const DeviceCheckInput& input);
std::vector<DeviceCheckRow> CheckSmallParity(const DeviceCheckInput& input);
std::vector<DeviceCheckRow> MeasureSmallSpeed(const DeviceCheckInput& input);
std::vector<DeviceCheckRow> CheckLargeParity(const DeviceCheckInput& input);
std::vector<DeviceCheckRow> MeasureLargeSpeed(const DeviceCheckInput& input);

// In the order in which they run. A new part is a line in device_check_parts.cc.
const std::vector<DeviceCheckPart>& DeviceCheckParts();

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_DEVICE_CHECK_H_
