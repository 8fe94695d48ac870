#include "oracle/reference/blocks.h"

#include <algorithm>

#include "caches/check.h"
#include "oracle/model_rows.h"

namespace lockstep::oracle {
namespace {

int ByteAt(const std::byte* block, int64_t i) { return std::to_integer<int>(block[i]); }

double HalfAt(const std::byte* block, int64_t i) {
  return ValueOfF16(static_cast<uint16_t>(ByteAt(block, i) + 256 * ByteAt(block, i + 1)));
}

int BitAt(const std::byte* bytes, int64_t i) { return ByteAt(bytes, i / 8) >> i % 8 & 1; }

constexpr int kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

// 32 elements of 4 or 5 bits: nibbles at `nibbles`, the fifth bits at `fifths` or none.
void Codes32(const std::byte* nibbles, const std::byte* fifths, int* codes) {
  for (int64_t j = 0; j < 16; ++j) {
    codes[j] = ByteAt(nibbles, j) % 16;
    codes[j + 16] = ByteAt(nibbles, j) / 16;
  }
  if (fifths == nullptr) return;
  for (int64_t j = 0; j < 32; ++j) codes[j] += 16 * BitAt(fifths, j);
}

void Linear32(double scale, double constant, int bias, const std::byte* nibbles,
              const std::byte* fifths, double* values, double* constants) {
  int codes[32];
  Codes32(nibbles, fifths, codes);
  for (int64_t j = 0; j < 32; ++j) {
    values[j] = scale * (codes[j] - bias) + constant;
    constants[j] = constant;
  }
}

void Table32(double scale, const std::byte* nibbles, double* values) {
  int codes[32];
  Codes32(nibbles, nullptr, codes);
  for (int64_t j = 0; j < 32; ++j) values[j] = scale * kIq4Values[codes[j]];
}

// Scales and mins of Q4_K and Q5_K: eight of six bits each in twelve bytes. The first four of both
// are the low six bits of the first eight bytes; of the others the low four bits share the last
// four bytes, and the upper two are what the first eight have left.
void SixBitPairs(const std::byte* packed, int (&scales)[8], int (&mins)[8]) {
  for (int64_t j = 0; j < 4; ++j) {
    scales[j] = ByteAt(packed, j) % 64;
    mins[j] = ByteAt(packed, 4 + j) % 64;
    scales[4 + j] = ByteAt(packed, 8 + j) % 16 + 16 * (ByteAt(packed, j) / 64);
    mins[4 + j] = ByteAt(packed, 8 + j) / 16 + 16 * (ByteAt(packed, 4 + j) / 64);
  }
}

void ValuesOfQ2K(const std::byte* block, double* values, double* constants) {
  const double d = HalfAt(block, 80), dmin = HalfAt(block, 82);
  int64_t sub = 0;
  for (int64_t half = 0; half < 2; ++half) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int64_t l = 0; l < 32; ++l) {
        const int both = ByteAt(block, sub + l / 16);
        const int code = ByteAt(block, 16 + 32 * half + l) >> shift & 3;
        *constants = -dmin * (both / 16);
        *values++ = d * (both % 16) * code + *constants;
        ++constants;
      }
      sub += 2;
    }
  }
}

void ValuesOfQ3K(const std::byte* block, double* values) {
  const double d = HalfAt(block, 108);
  int scales[16];
  for (int64_t j = 0; j < 4; ++j) {
    const int first = ByteAt(block, 96 + j), second = ByteAt(block, 100 + j);
    const int upper = ByteAt(block, 104 + j);  // two bits of each of the four
    scales[j] = first % 16 + 16 * (upper % 4);
    scales[4 + j] = second % 16 + 16 * (upper / 4 % 4);
    scales[8 + j] = first / 16 + 16 * (upper / 16 % 4);
    scales[12 + j] = second / 16 + 16 * (upper / 64);
  }
  for (int64_t i = 0; i < 256; ++i) {
    const int64_t run = i / 32, l = i % 32;  // eight runs: four pairs of bits, twice
    const int pair = ByteAt(block, 32 + 32 * (run / 4) + l) >> (2 * (run % 4)) & 3;
    const int upper = ByteAt(block, l) >> run & 1;
    values[i] = d * (scales[i / 16] - 32) * (pair + 4 * upper - 4);
  }
}

void ValuesOfQ4K(const std::byte* block, bool five, double* values, double* constants) {
  const double d = HalfAt(block, 0), dmin = HalfAt(block, 2);
  int scales[8], mins[8];
  SixBitPairs(block + 4, scales, mins);
  const std::byte* fifths = block + 16;
  const std::byte* nibbles = five ? block + 48 : block + 16;
  for (int64_t sub = 0; sub < 8; ++sub) {
    for (int64_t l = 0; l < 32; ++l) {
      const int byte = ByteAt(nibbles, 32 * (sub / 2) + l);
      int code = sub % 2 == 0 ? byte % 16 : byte / 16;
      if (five) code += 16 * (ByteAt(fifths, l) >> sub & 1);
      *constants = -dmin * mins[sub];
      *values++ = d * scales[sub] * code + *constants;
      ++constants;
    }
  }
}

void ValuesOfQ6K(const std::byte* block, double* values) {
  const double d = HalfAt(block, 208);
  for (int64_t half = 0; half < 2; ++half) {
    const std::byte* nibbles = block + 64 * half;
    const std::byte* pairs = block + 128 + 32 * half;
    for (int64_t l = 0; l < 32; ++l) {
      const int low[4] = {ByteAt(nibbles, l) % 16, ByteAt(nibbles, l + 32) % 16,
                          ByteAt(nibbles, l) / 16, ByteAt(nibbles, l + 32) / 16};
      for (int64_t quarter = 0; quarter < 4; ++quarter) {
        const int64_t i = 128 * half + 32 * quarter + l;
        const int upper = ByteAt(pairs, l) >> (2 * quarter) & 3;
        const auto scale = static_cast<int8_t>(ByteAt(block, 192 + i / 16));
        values[i] = d * scale * (low[quarter] + 16 * upper - 32);
      }
    }
  }
}

void ValuesOfIq4Xs(const std::byte* block, double* values) {
  const double d = HalfAt(block, 0);
  for (int64_t sub = 0; sub < 8; ++sub) {
    const int low = ByteAt(block, 4 + sub / 2) >> (sub % 2 == 0 ? 0 : 4) & 15;
    const int high = BitAt(block + 2, 2 * sub) + 2 * BitAt(block + 2, 2 * sub + 1);
    Table32(d * (low + 16 * high - 32), block + 8 + 16 * sub, values + 32 * sub);
  }
}

}  // namespace

int64_t BlockElements(GgmlType type) {
  switch (type) {
    case GgmlType::kQ2_K:
    case GgmlType::kQ3_K:
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
    case GgmlType::kQ6_K:
    case GgmlType::kIQ4_XS:
      return 256;
    default:
      return 32;
  }
}

int64_t BlockBytes(GgmlType type) {
  const auto traits = TraitsOf(type);
  LS_CHECK(traits && traits->block_elements == BlockElements(type), "weight type {}",
           static_cast<uint32_t>(type));
  return traits->block_bytes;
}

int64_t ElementsOfAScale(GgmlType type) {
  const bool sixteen =
      type == GgmlType::kQ2_K || type == GgmlType::kQ3_K || type == GgmlType::kQ6_K;
  return sixteen ? 16 : 32;
}

bool HasConstants(GgmlType type) {
  return type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1 || type == GgmlType::kQ2_K ||
         type == GgmlType::kQ4_K || type == GgmlType::kQ5_K;
}

void ValuesOfBlock(GgmlType type, const std::byte* block, double* values, double* constants) {
  std::fill_n(constants, BlockElements(type), 0.0);
  switch (type) {
    case GgmlType::kQ4_0:
      return ValuesOfQ4_0(block, values);
    case GgmlType::kQ8_0:
      return ValuesOfQ8_0(block, values);
    case GgmlType::kQ4_1:
      return Linear32(HalfAt(block, 0), HalfAt(block, 2), 0, block + 4, nullptr, values, constants);
    case GgmlType::kQ5_0:
      return Linear32(HalfAt(block, 0), 0, 16, block + 6, block + 2, values, constants);
    case GgmlType::kQ5_1:
      return Linear32(HalfAt(block, 0), HalfAt(block, 2), 0, block + 8, block + 4, values,
                      constants);
    case GgmlType::kQ2_K:
      return ValuesOfQ2K(block, values, constants);
    case GgmlType::kQ3_K:
      return ValuesOfQ3K(block, values);
    case GgmlType::kQ4_K:
      return ValuesOfQ4K(block, false, values, constants);
    case GgmlType::kQ5_K:
      return ValuesOfQ4K(block, true, values, constants);
    case GgmlType::kQ6_K:
      return ValuesOfQ6K(block, values);
    case GgmlType::kIQ4_NL:
      return Table32(HalfAt(block, 0), block + 2, values);
    case GgmlType::kIQ4_XS:
      return ValuesOfIq4Xs(block, values);
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      break;
  }
  LS_CHECK(false, "weight type {}", static_cast<uint32_t>(type));
}

}  // namespace lockstep::oracle
