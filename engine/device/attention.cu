#include "caches/device_cuda_block.h"
#include "engine/device/score_kernel.h"
#include "engine/device/softmax_kernel.h"
#include "engine/device/value_kernels.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(device::ScoreKernel<64>)
LOCKSTEP_CUDA_KERNEL(device::ScoreKernel<128>)
LOCKSTEP_CUDA_KERNEL(device::ScoreKernel<256>)
LOCKSTEP_CUDA_KERNEL(device::SoftmaxKernel)
LOCKSTEP_CUDA_KERNEL(device::ValueKernel<64>)
LOCKSTEP_CUDA_KERNEL(device::ValueKernel<128>)
LOCKSTEP_CUDA_KERNEL(device::ValueKernel<256>)
LOCKSTEP_CUDA_KERNEL(device::CombineKernel)

}  // namespace lockstep
