// The table "avx2": the portable kernels, compiled for AVX2 and FMA (CMakeLists.txt).
#if defined(__x86_64__)

#include "engine/kernels/portable_table.h"

namespace lockstep::internal {

const IsaKernels kAvx2Kernels = PortableKernels("avx2");

}  // namespace lockstep::internal

#endif  // __x86_64__
