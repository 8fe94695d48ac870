// The table "scalar": the portable kernels, compiled for the baseline.
#include "engine/kernels/portable_table.h"

namespace lockstep::internal {

const IsaKernels kScalarKernels = PortableKernels("scalar");

}  // namespace lockstep::internal
