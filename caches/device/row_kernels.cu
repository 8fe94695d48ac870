#include "caches/device/row_kernels.h"
#include "caches/device_cuda_block.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(device::StoreRowsKernel)
LOCKSTEP_CUDA_KERNEL(device::ZeroRowsKernel)
LOCKSTEP_CUDA_KERNEL(device::MoveRowsKernel)

}  // namespace lockstep
