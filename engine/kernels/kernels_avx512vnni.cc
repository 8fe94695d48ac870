// The table "avx512vnni": that of AVX-512, compiled with VNNI as well: one instruction for 64 exact
// multiply-adds.
#if defined(__x86_64__)

#include "engine/kernels/avx512_table.h"

namespace lockstep::internal {

const IsaKernels kAvx512VnniKernels = Avx512Kernels("avx512vnni");

}  // namespace lockstep::internal

#endif  // __x86_64__
