// How one row of kv_stride elements is stored. For nvcc too: no fmt, no standard containers.
#ifndef LOCKSTEP_CACHES_ROW_TYPE_H_
#define LOCKSTEP_CACHES_ROW_TYPE_H_

#include <cstdint>

namespace lockstep {

// Block formats are ggml's (see codec.h). The numbers stand in cache files, and may not change as
// long as there are such files.
enum class RowType : uint8_t { kF32 = 0, kF16 = 1, kQ8_0 = 2, kQ4_0 = 3, kBf16 = 4 };

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_ROW_TYPE_H_
