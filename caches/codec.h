// How rows of a cache are stored: F32, F16, BF16, and ggml's block formats Q8_0 and Q4_0, to the
// bit.
//
// Quantized rows are blocks of 32 elements; a row of n elements has n / 32 blocks, one after
// another, without padding (an odd number of blocks leaves the next row 2-byte aligned only).
//
//   Q8_0, 34 bytes: F16 scale d (little-endian), then 32 int8 codes q.
//                   x = float(q) * float(d)
//   Q4_0, 18 bytes: F16 scale d, then 16 bytes: byte j holds the 4-bit code of element j in its low
//                   nibble and that of element j + 16 in its high nibble.
//                   x = float(code - 8) * float(d)
//
// Encoding one block, in F32 and in this order (no fma, one rounding an operation):
//
//   Q8_0  amax = max |x|;               d = amax / 127;  id = 1 / d
//         q    = round(x * id), ties away from zero, clamped to [-127, 127]
//   Q4_0  max  = the element of largest magnitude, the first among equals;  d = max / -8;  id = 1/d
//         code = trunc(x * id + 8.5), clamped to [0, 15]    (ties towards the higher code)
//
// Codes come from the F32 scale and its reciprocal; only the *stored* scale is rounded to F16. This
// is what ggml's reference quantizer does (quantize_row_q8_0_ref, quantize_row_q4_0_ref), so the
// bytes of every block whose scale is a non-zero finite F16 equal the bytes in a GGUF file. (Ties
// away from zero, rather than to even, for the same reason.)
//
// The edges, where ggml leaves -0.0 rows, 0 * inf or undefined conversions, are ours:
//
//   zero   The F16 scale would be 0 (|d| <= 2^-25, all-zero blocks included): the zero block, which
//          is scale +0 and the code of zero throughout. It decodes to +0.0f, as a row that was
//          never written must [V2]. Elements below the smallest scale are lost: |x| <= 127 * 2^-25.
//   huge   The F16 scale would be infinite (|d| >= 65520): d = 65504 with its sign, codes from that
//          d. Elements inside the format's range are exact as always, larger ones saturate; a
//          finite row stays finite.
//   NaN    A block with an infinity or a NaN in it: scale 0x7e00 and the code of zero throughout.
//   It
//          decodes to NaN in all 32 elements, so that a fault upstream is never hidden by storage.
#ifndef LOCKSTEP_CACHES_CODEC_H_
#define LOCKSTEP_CACHES_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "caches/kv_cache.h"

namespace lockstep {

inline constexpr int64_t kBlockElements = 32;  // of Q8_0 and of Q4_0
inline constexpr int64_t kQ8_0BlockBytes = 34;
inline constexpr int64_t kQ4_0BlockBytes = 18;

// binary16 of the value, rounded to nearest even; subnormals are kept, values of magnitude 65520
// and more become infinite, every NaN becomes 0x7e00.
uint16_t F16FromF32(float value);

// Exact. Every NaN becomes 0x7fc00000.
float F32FromF16(uint16_t bits);

// bfloat16 of the value: the upper half of its bits after rounding to nearest even. Subnormals are
// kept; what rounds past the largest finite one (0x7f7f), from 0x7f7f8000 on, becomes infinite;
// every NaN becomes 0x7fc0. ggml keeps a NaN's sign and upper payload and sets the quiet bit, which
// no comparison here can see; finite values and infinities have its bits
// (ggml_compute_fp32_to_bf16).
uint16_t Bf16FromF32(float value);

// Exact: the F32 whose upper half these are. Every NaN becomes 0x7fc00000.
float F32FromBf16(uint16_t bits);

// Stores a row as `type`. REQUIRES: stored has RowBytes(type, row.size()) bytes, and the block
// formats have row.size() a multiple of 32. The two may not overlap.
void EncodeRow(RowType type, std::span<const float> row, std::span<std::byte> stored);

// The reverse, with the same requirements. F32 rows come back to the bit.
void DecodeRow(RowType type, std::span<const std::byte> stored, std::span<float> row);

}  // namespace lockstep

#endif  // LOCKSTEP_CACHES_CODEC_H_
