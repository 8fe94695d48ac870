#include "caches/device_cuda_block.h"
#include "engine/device/argmax_kernels.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(device::ArgMaxStretchKernel)
LOCKSTEP_CUDA_KERNEL(device::ArgMaxKernel)

}  // namespace lockstep
