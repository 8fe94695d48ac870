#include "caches/device/row_kernels.h"

#include "caches/device_host_block.h"

namespace lockstep {

LOCKSTEP_DEVICE_KERNEL(device::StoreRowsKernel)
LOCKSTEP_DEVICE_KERNEL(device::ZeroRowsKernel)
LOCKSTEP_DEVICE_KERNEL(device::MoveRowsKernel)

}  // namespace lockstep
