#include "caches/device_host_block.h"
#include "engine/device/argmax_kernels.h"
#include "engine/device/kernels.h"
#include "engine/device/launch.h"

namespace lockstep {

LOCKSTEP_DEVICE_KERNEL(device::ArgMaxStretchKernel)
LOCKSTEP_DEVICE_KERNEL(device::ArgMaxKernel)

namespace device {

int64_t ArgMaxScratch(int32_t rows, int32_t n) {
  return int64_t{rows} * BlocksFor(n, kArgMaxStretch);
}

void ArgMax(DeviceStream& stream, Global<const float> values, int32_t rows, int32_t n,
            Global<int32_t> scratch, Global<int32_t> out) {
  LS_CHECK(n > 0, "argmax of nothing");
  const int32_t stretches = BlocksFor(n, kArgMaxStretch);
  const Global<int32_t> best = First("scratch", scratch, ArgMaxScratch(rows, n));
  CheckSize("values", values, int64_t{rows} * n);
  Launch<ArgMaxStretchKernel>(stream, {.x = stretches, .y = rows},
                              {.n = n, .stretches = stretches, .values = values, .best = best});
  Launch<ArgMaxKernel>(stream, {.x = 1, .y = rows},
                       {.n = n,
                        .stretches = stretches,
                        .values = values,
                        .best = best,
                        .out = First("out", out, rows)});
}

}  // namespace device
}  // namespace lockstep
