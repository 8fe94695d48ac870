// Rows and weights in the formats of caches/codec.h and of GGUF, written a second time and in
// another way: exact values in double, one rounding to binary32 or binary16 where the format asks
// for one. The oracle's own; it shares no code with caches/codec.cc and engine/.
#ifndef LOCKSTEP_ORACLE_MODEL_ROWS_H_
#define LOCKSTEP_ORACLE_MODEL_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "caches/kv_cache.h"

namespace lockstep::oracle {

// Value of 16 bits as IEEE 754 binary16, and of 16 bits as bfloat16. Exact; NaN for every NaN.
double ValueOfF16(uint16_t bits);
double ValueOfBf16(uint16_t bits);

// The binary16 nearest to a value that binary32 can hold, ties to even; 0x7e00 for NaN.
uint16_t NearestF16(double value);
uint16_t NearestBf16(double value);  // the nearest bfloat16 likewise; 0x7fc0 for NaN

// The stored bytes of one row. REQUIRES: a multiple of 32 elements for the block formats.
std::vector<std::byte> EncodeModelRow(RowType type, std::span<const float> row);

// What a query reads from them.
std::vector<float> DecodeModelRow(RowType type, std::span<const std::byte> stored);

// Exact values of ggml blocks: Q8_0 is 34 bytes, Q4_0 18 bytes, 32 values each.
void ValuesOfQ8_0(const std::byte* block, double* values);
void ValuesOfQ4_0(const std::byte* block, double* values);

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_MODEL_ROWS_H_
