// The table "neon", compiled for ARMv8.0.
#if defined(__aarch64__)

#include "engine/kernels/neon_table.h"

namespace lockstep::internal {

const IsaKernels kNeonKernels = NeonKernels("neon");

}  // namespace lockstep::internal

#endif  // __aarch64__
