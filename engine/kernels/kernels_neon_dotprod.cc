// The table "neon_dotprod", compiled for ARMv8.2 with dot products of bytes (CMakeLists.txt).
#if defined(__aarch64__)

#include "engine/kernels/neon_table.h"

namespace lockstep::internal {

const IsaKernels kNeonDotprodKernels = NeonKernels("neon_dotprod");

}  // namespace lockstep::internal

#endif  // __aarch64__
