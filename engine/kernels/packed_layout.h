// Where the bytes of a PackedMatrix lie. A group is 16 output rows, r = 0..15:
//
//   F32              for each k: a line of 16 values, row r at index r.
//   F16, BF16        two groups share their lines: for each k, 16 values of the even group, then 16
//                    of the odd one. With an odd number of groups the last has an empty partner.
//                    (A chain of one fma a k is not fast enough to keep up with memory at half a
//                    line a k; two chains are, without a second stream.)
//   quantized        quant_layout.h says how; of them
//   Q8_0, Q4_0       for each pair of blocks of 32 k: one line of 64 bytes with the F16 scales of
//                    both (16 rows of the first, then 16 of the second), then the lines of quants
//                    of the first block, then those of the second. Every line is aligned to 64. An
//                    odd last block has a line of scales, half of it unused, to itself.
//     Q8_0 quants    8 lines. Byte 4 r + j of line i is the weight of row r at k = 4 i + j, plus
//                    128 (so that an unsigned-by-signed dot product takes it; the bias comes off as
//                    ActivationBlock::offset, or by flipping the top bit).
//     Q4_0 quants    4 lines. Byte 4 r + j of line i holds k = 4 i + j in its low and
//                    k = 16 + 4 i + j in its high nibble, each plus 8, as ggml stores them.
//
// 4, 2, 34 / 32 and 18 / 32 bytes a weight, as in the file, and up to 6 % more than in the file for
// other types; a group is whole lines. The bytes of a matrix are one stream when its groups are
// read in order.
//
// Device kernels read the same bytes, so this header is for nvcc too.
#ifndef LOCKSTEP_ENGINE_KERNELS_PACKED_LAYOUT_H_
#define LOCKSTEP_ENGINE_KERNELS_PACKED_LAYOUT_H_

#include <cstdint>

#if defined(__CUDACC__)
#define LOCKSTEP_LAYOUT __host__ __device__ inline constexpr
#else
#define LOCKSTEP_LAYOUT inline constexpr
#endif

namespace lockstep::internal {
namespace {

inline constexpr int32_t kRows = 16;      // output rows of a group
inline constexpr int32_t kBlock = 32;     // k of a quantized block
inline constexpr int32_t kSegment = 256;  // k of a seg256 segment
inline constexpr int32_t kBlocksPerSegment = kSegment / kBlock;
inline constexpr int32_t kLineBytes = 64;  // 16 rows x 4 bytes
inline constexpr int32_t kScaleBytes = 2 * kRows;
inline constexpr int32_t kQ8FileBytes = 34;  // a block of one row as GGUF stores it
inline constexpr int32_t kQ4FileBytes = 18;

// Groups of a matrix as stored, padding included.
LOCKSTEP_LAYOUT int64_t StoredGroups(bool halves, int64_t groups) {
  return halves ? (groups + 1) / 2 * 2 : groups;
}

// Offset of a group within the matrix.
LOCKSTEP_LAYOUT int64_t GroupAt(bool halves, int64_t group, int64_t group_bytes) {
  return halves ? group / 2 * 2 * group_bytes + group % 2 * kScaleBytes : group * group_bytes;
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PACKED_LAYOUT_H_
