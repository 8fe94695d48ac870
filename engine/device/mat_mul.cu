#include "caches/device_cuda_block.h"
#include "engine/device/mat_mul_kernel.h"
#include "engine/device/mat_vec_kernel.h"

namespace lockstep {

#define LOCKSTEP_FLOAT_PRODUCTS(type)                                  \
  LOCKSTEP_CUDA_KERNEL(device::MatVecKernel<device::WeightType::type>) \
  LOCKSTEP_CUDA_KERNEL(device::MatMulFloatKernel<device::WeightType::type>)
#define LOCKSTEP_QUANT_PRODUCTS(type)                                  \
  LOCKSTEP_CUDA_KERNEL(device::MatVecKernel<device::WeightType::type>) \
  LOCKSTEP_CUDA_KERNEL(device::MatMulQuantKernel<device::WeightType::type>)
LOCKSTEP_FLOAT_WEIGHTS(LOCKSTEP_FLOAT_PRODUCTS)
LOCKSTEP_QUANT_WEIGHTS(LOCKSTEP_QUANT_PRODUCTS)
#undef LOCKSTEP_FLOAT_PRODUCTS
#undef LOCKSTEP_QUANT_PRODUCTS

}  // namespace lockstep
