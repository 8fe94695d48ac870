#include "caches/device_cuda_block.h"
#include "engine/device/expert_kernels.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(device::RouteKernel)
LOCKSTEP_CUDA_KERNEL(device::AddExpertsKernel)

}  // namespace lockstep
