// What a device can do at most: memory bandwidth, F32 multiply-adds, exact products of 8-bit
// integers. Timed by the device's events, or by the host's clock where it has no clock of its own.
#ifndef LOCKSTEP_REPORTS_DEVICE_LIMITS_H_
#define LOCKSTEP_REPORTS_DEVICE_LIMITS_H_

#include <cstdint>

#include "caches/device.h"

namespace lockstep {

struct DeviceLimitOptions {
  int64_t copy_bytes = 64 << 10;  // a multiple of 16; far more than the device's caches hold
  int32_t blocks = 2;             // of the arithmetic kernels
  int32_t iterations = 16;        // of 8 chains a thread
  int32_t attempts = 2;           // the best one counts
};
// Some milliseconds an attempt on a GPU of today; tiny where `simulated`.
DeviceLimitOptions DeviceLimitOptionsFor(const Device& device, bool simulated);

struct DeviceLimits {
  double copy_bytes_per_second = 0;  // read and written ones
  double fmas_per_second = 0;        // F32
  double products_per_second = 0;    // of 8-bit integers, four an instruction
  bool device_clock = false;
  // The kernels computed what the host executor computes; else the figures mean nothing.
  bool right = false;
};
DeviceLimits MeasureDeviceLimits(Device& device, const DeviceLimitOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_DEVICE_LIMITS_H_
