#include "reports/device/limit_kernels.h"

#include "caches/device_host_block.h"

namespace lockstep {

LOCKSTEP_DEVICE_KERNEL(LimitCopyKernel)
LOCKSTEP_DEVICE_KERNEL(LimitFmaKernel)
LOCKSTEP_DEVICE_KERNEL(LimitDotKernel)

}  // namespace lockstep
