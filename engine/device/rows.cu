#include "caches/device_cuda_block.h"
#include "engine/device/row_kernels.h"

namespace lockstep {

LOCKSTEP_CUDA_KERNEL(device::EmbedKernel)
LOCKSTEP_CUDA_KERNEL(device::RmsNormKernel)
LOCKSTEP_CUDA_KERNEL(device::QuantizeActivationsKernel)
LOCKSTEP_CUDA_KERNEL(device::GateKernel<false>)
LOCKSTEP_CUDA_KERNEL(device::GateKernel<true>)
LOCKSTEP_CUDA_KERNEL(device::ScaleAndAddKernel)

}  // namespace lockstep
