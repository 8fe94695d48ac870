// The table "scalar": the portable kernels, compiled for the baseline.
#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/portable_attention.h"
#include "engine/kernels/portable_matmul.h"
#include "engine/kernels/portable_rows.h"

namespace lockstep::internal {

const IsaKernels kScalarKernels = {
    .name = "scalar",
    .matmul = Matmul,
    .quantize_activations = QuantizeActivations,
    .rms_norm = RmsNorm,
    .rope_interleaved = RopeInterleaved,
    .attention = Attention,
    .silu_gate = SiluGate,
    .add = Add,
};

}  // namespace lockstep::internal
