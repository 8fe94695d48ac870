// The table "avx512": the portable kernels, compiled for AVX-512 F, BW, DQ, VL and FMA
// (CMakeLists.txt).
#if defined(__x86_64__)

#include "engine/kernels/portable_table.h"

namespace lockstep::internal {

const IsaKernels kAvx512Kernels = PortableKernels("avx512");

}  // namespace lockstep::internal

#endif  // __x86_64__
