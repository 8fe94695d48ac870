#include "caches/device_cuda_block.h"
#include "engine/device/mat_mul_kernel.h"
#include "engine/device/mat_vec_kernel.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(device::MatVecKernel<device::WeightType::kF32>)
LOCKSTEP_CUDA_KERNEL(device::MatVecKernel<device::WeightType::kF16>)
LOCKSTEP_CUDA_KERNEL(device::MatVecKernel<device::WeightType::kBF16>)
LOCKSTEP_CUDA_KERNEL(device::MatVecKernel<device::WeightType::kQ8_0>)
LOCKSTEP_CUDA_KERNEL(device::MatVecKernel<device::WeightType::kQ4_0>)
LOCKSTEP_CUDA_KERNEL(device::MatMulFloatKernel<device::WeightType::kF32>)
LOCKSTEP_CUDA_KERNEL(device::MatMulFloatKernel<device::WeightType::kF16>)
LOCKSTEP_CUDA_KERNEL(device::MatMulFloatKernel<device::WeightType::kBF16>)
LOCKSTEP_CUDA_KERNEL(device::MatMulQuantKernel<device::WeightType::kQ8_0>)
LOCKSTEP_CUDA_KERNEL(device::MatMulQuantKernel<device::WeightType::kQ4_0>)

}  // namespace lockstep
