// The table "avx512": compiled for AVX-512 F, BW, DQ, VL, F16C and FMA (CMakeLists.txt).
#if defined(__x86_64__)

#include "engine/kernels/avx512_table.h"

namespace lockstep::internal {

const IsaKernels kAvx512Kernels = Avx512Kernels("avx512");

}  // namespace lockstep::internal

#endif  // __x86_64__
