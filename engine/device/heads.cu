#include "caches/device_cuda_block.h"
#include "engine/device/head_kernels.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(device::FinishQueryKernel)
LOCKSTEP_CUDA_KERNEL(device::StoreHeadsKernel)

}  // namespace lockstep
