// For tests: blocks of every quantized type, and what gguf-py 0.15 (the Python reader beside
// llama.cpp) decodes them to, as a checksum. Scales are 1 and 4, so that all values are integers.
#ifndef LOCKSTEP_ENGINE_QUANT_VECTORS_H_
#define LOCKSTEP_ENGINE_QUANT_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/gguf.h"

namespace lockstep {

struct QuantVector {
  GgmlType type;
  int scale_at;       // of the F16 that is 1
  int low_at;         // of the F16 that is 4, or -1
  uint64_t checksum;  // of the values of 64 blocks
};

inline constexpr QuantVector kQuantVectors[] = {
    {GgmlType::kQ4_0, 0, -1, 0x252ad08a8ddec6c9},   {GgmlType::kQ4_1, 0, 2, 0xb0d369506f2a0a54},
    {GgmlType::kQ5_0, 0, -1, 0xd7e25a34a3f28db2},   {GgmlType::kQ5_1, 0, 2, 0x5c54800141b19a58},
    {GgmlType::kQ8_0, 0, -1, 0xff9680f46d60a1e1},   {GgmlType::kQ2_K, 80, 82, 0xf15c1fe5b56c86c9},
    {GgmlType::kQ3_K, 108, -1, 0x9e2b2bcfc31342d1}, {GgmlType::kQ4_K, 0, 2, 0x795943e2776e3146},
    {GgmlType::kQ5_K, 0, 2, 0x2e5cf9f9b2d48ade},    {GgmlType::kQ6_K, 208, -1, 0x974e58025e844f82},
    {GgmlType::kIQ4_NL, 0, -1, 0xad29f08642a8a34e}, {GgmlType::kIQ4_XS, 0, -1, 0xee8dde2a2dd2ed39},
};

// 64 blocks: bytes 24 to 31 of x = 1664525 x + 1013904223 modulo 2^32, from the type's id on.
inline std::vector<std::byte> QuantVectorBlocks(const QuantVector& vector) {
  const int64_t block_bytes = TraitsOf(vector.type)->block_bytes;
  std::vector<std::byte> bytes;
  auto x = static_cast<uint32_t>(vector.type);
  for (int64_t i = 0; i < 64 * block_bytes; ++i) {
    x = 1664525 * x + 1013904223;
    bytes.push_back(static_cast<std::byte>(x >> 24));
  }
  const auto put_half = [](uint8_t upper, std::byte* at) {
    at[0] = std::byte{0};
    at[1] = std::byte{upper};
  };
  for (std::byte* at = bytes.data(); at < bytes.data() + bytes.size(); at += block_bytes) {
    put_half(0x3c, at + vector.scale_at);
    if (vector.low_at >= 0) put_half(0x44, at + vector.low_at);
  }
  return bytes;
}

// c = 31 c + value, modulo 2^64.
inline uint64_t ChecksumOfIntegers(const std::vector<double>& values) {
  uint64_t checksum = 0;
  for (const double value : values) {
    checksum = 31 * checksum + static_cast<uint64_t>(static_cast<int64_t>(value));
  }
  return checksum;
}

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_QUANT_VECTORS_H_
