#include "caches/device/test_kernels.h"

#include "caches/device_host_block.h"

namespace lockstep {

LOCKSTEP_DEVICE_KERNEL(BlockSumKernel)
LOCKSTEP_DEVICE_KERNEL(PutKernel)
LOCKSTEP_DEVICE_KERNEL(EncodeRowsKernel)
LOCKSTEP_DEVICE_KERNEL(DecodeRowsKernel)

}  // namespace lockstep
