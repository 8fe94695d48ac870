// The table "avx2": compiled for AVX2, F16C and FMA (CMakeLists.txt).
#if defined(__x86_64__)

#include "engine/kernels/avx2_matmul.h"
#include "engine/kernels/portable_table.h"

namespace lockstep::internal {
namespace {

constexpr IsaKernels Avx2Kernels() {
  IsaKernels kernels = PortableKernels("avx2");
  kernels.matmul = Matmul256;
  return kernels;
}

}  // namespace

const IsaKernels kAvx2Kernels = Avx2Kernels();

}  // namespace lockstep::internal

#endif  // __x86_64__
