#include "caches/device_cuda_block.h"
#include "reports/device/limit_kernels.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(LimitCopyKernel)
LOCKSTEP_CUDA_KERNEL(LimitFmaKernel)
LOCKSTEP_CUDA_KERNEL(LimitDotKernel)

}  // namespace lockstep
