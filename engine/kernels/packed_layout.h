// Where the bytes of a PackedMatrix lie. A group is 16 output rows, r = 0..15:
//
//   F32, F16, BF16   for each k: 16 values, row r at index r.
//   Q8_0             for each block of 32 k: 16 F16 scales, then 8 lines of 64 bytes. Byte 4 r + j
//                    of line i is the weight of row r at k = 4 i + j, plus 128 (so that an
//                    unsigned-by-signed dot product takes it; the bias is taken off per block as
//                    128 * sum of the activations' quants, or by flipping the top bit).
//   Q4_0             for each block: 16 F16 scales, then 4 lines of 64 bytes. Byte 4 r + j of line
//   i
//                    holds k = 4 i + j in its low and k = 16 + 4 i + j in its high nibble, each
//                    plus 8, as ggml stores them.
//
// 4, 2, 34 / 32 and 18 / 32 bytes a weight, as in the file. Groups are padded to 64 bytes.
#ifndef LOCKSTEP_ENGINE_KERNELS_PACKED_LAYOUT_H_
#define LOCKSTEP_ENGINE_KERNELS_PACKED_LAYOUT_H_

#include <cstdint>

namespace lockstep::internal {

inline constexpr int32_t kRows = 16;       // output rows of a group
inline constexpr int32_t kBlock = 32;      // k of a quantized block
inline constexpr int32_t kSegment = 256;   // k of a seg256 segment
inline constexpr int32_t kLineBytes = 64;  // 16 rows x 4 bytes
inline constexpr int32_t kScaleBytes = 2 * kRows;
inline constexpr int32_t kQ8Lines = 8;
inline constexpr int32_t kQ4Lines = 4;
inline constexpr int32_t kQ8BlockBytes = kScaleBytes + kQ8Lines * kLineBytes;  // 544 = 16 * 34
inline constexpr int32_t kQ4BlockBytes = kScaleBytes + kQ4Lines * kLineBytes;  // 288 = 16 * 18
inline constexpr int32_t kQ8FileBytes = 34;  // a block of one row as GGUF stores it
inline constexpr int32_t kQ4FileBytes = 18;

}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PACKED_LAYOUT_H_
