#include "caches/device/test_kernels.h"
#include "caches/device_cuda_block.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(BlockSumKernel)
LOCKSTEP_CUDA_KERNEL(PutKernel)
LOCKSTEP_CUDA_KERNEL(EncodeRowsKernel)
LOCKSTEP_CUDA_KERNEL(DecodeRowsKernel)

}  // namespace lockstep
