// matmul and activation quantization in portable C++. The 16 rows of a group are the lanes of plain
// loops and of generic vectors (g++, clang) as wide as the instruction set compiled for.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

// 16 weights of a float group, widened.
template <GgmlType kType>
inline void LoadWeights(const uint8_t* group, int64_t k, float* out) {
  if constexpr (kType == GgmlType::kF32) {
    __builtin_memcpy(out, group + k * kRows * 4, kRows * 4);
  } else {
    uint16_t halves[kRows];
    __builtin_memcpy(halves, group + k * kRows * 2, sizeof halves);
    for (int r = 0; r < kRows; ++r) {
      out[r] = kType == GgmlType::kF16 ? WidenF16(halves[r]) : WidenBF16(halves[r]);
    }
  }
}

// seg256: adds the finished chains to the sums and starts them anew.
template <size_t T>
inline void CloseSegment(float (&chain)[T][kRows], float (&sums)[T][kRows]) {
  for (size_t t = 0; t < T; ++t) {
    for (int r = 0; r < kRows; ++r) {
      sums[t][r] += chain[t][r];
      chain[t][r] = 0.0f;
    }
  }
}

template <size_t T>
inline void StartSums(float (&chain)[T][kRows], float (&sums)[T][kRows]) {
  for (size_t t = 0; t < T; ++t) {
    for (int r = 0; r < kRows; ++r) {
      chain[t][r] = 0.0f;
      sums[t][r] = -0.0f;  // -0 + p is p, for every p
    }
  }
}

// seg256 over k for 16 rows and T tokens from token `first` on.
template <GgmlType kType, size_t T>
inline void FloatGroup(const uint8_t* group, const Activations& x, int64_t first,
                       float (&sums)[T][kRows]) {
  const float* values = x.values + first * x.cols;
  const auto cols = static_cast<size_t>(x.cols);
  float chain[T][kRows];
  StartSums(chain, sums);
  for (int32_t begin = 0; begin < x.cols; begin += kSegment) {
    const int32_t end = x.cols - begin < kSegment ? x.cols : begin + kSegment;
    for (int32_t k = begin; k < end; ++k) {
      float w[kRows];
      LoadWeights<kType>(group, k, w);
      for (size_t t = 0; t < T; ++t)
        FmaLanes<kRows>(w, values[t * cols + static_cast<size_t>(k)], chain[t]);
    }
    CloseSegment(chain, sums);
  }
}

// Integer vectors as wide as the instruction set has them.
#if defined(__AVX512BW__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
using Shorts = int16_t __attribute__((vector_size(kVectorBytes)));
using Ints = int32_t __attribute__((vector_size(kVectorBytes)));
using Shorts8 = int16_t __attribute__((vector_size(16)));

// The low and the high byte of each 16-bit lane, sign-extended. Of 4 consecutive k in a 32-bit lane
// the low ones are k = 0 and 2, the high ones k = 1 and 3.
template <typename Vector>
inline Vector LowBytes(Vector v) {
  return (v << 8) >> 8;
}
template <typename Vector>
inline Vector HighBytes(Vector v) {
  return v >> 8;
}

// One block of a token's quants, split as the weights are: lane i holds k = 4 i and 4 i + 2, or
// k = 4 i + 1 and 4 i + 3.
struct QuantPairs {
  int32_t even[kBlock / 4];
  int32_t odd[kBlock / 4];
};

inline QuantPairs SplitQuants(const int8_t* quants) {
  QuantPairs pairs;
  for (int part = 0; part < 2; ++part) {
    Shorts8 v;
    __builtin_memcpy(&v, quants + 16 * part, sizeof v);
    const Shorts8 even = LowBytes(v);
    const Shorts8 odd = HighBytes(v);
    __builtin_memcpy(pairs.even + 4 * part, &even, sizeof even);
    __builtin_memcpy(pairs.odd + 4 * part, &odd, sizeof odd);
  }
  return pairs;
}

inline Shorts Splat(int32_t pair) { return __builtin_bit_cast(Shorts, Ints{} + pair); }

inline Ints LoadLine(const uint8_t* at) {
  Ints line;
  __builtin_memcpy(&line, at, sizeof line);
  return line;
}

// sums[t][r] = sum over the block's k of w[r, k] * xq[t, k], exact: a product is at most 128 * 127,
// so two of them fit 16 bits.
template <size_t T>
inline void BlockSumsQ8(const uint8_t* lines, const QuantPairs* x, int32_t (&sums)[T][kRows]) {
  for (int part = 0; part < kLineBytes / kVectorBytes; ++part) {
    Ints low[T] = {};
    Ints high[T] = {};
    for (int i = 0; i < kQ8Lines; ++i) {
      const Ints line = LoadLine(lines + i * kLineBytes + part * kVectorBytes);
      const auto w = __builtin_bit_cast(Shorts, line ^ static_cast<int32_t>(0x80808080));
      const Shorts even = LowBytes(w);
      const Shorts odd = HighBytes(w);
      for (size_t t = 0; t < T; ++t) {
        const Shorts products = even * Splat(x[t].even[i]) + odd * Splat(x[t].odd[i]);
        const auto pairs = __builtin_bit_cast(Ints, products);
        low[t] += (pairs << 16) >> 16;
        high[t] += pairs >> 16;
      }
    }
    for (size_t t = 0; t < T; ++t) {
      const Ints sum = low[t] + high[t];
      __builtin_memcpy(sums[t] + part * (kVectorBytes / 4), &sum, sizeof sum);
    }
  }
}

// The same for nibbles. A block's 16 products in one 16-bit lane, with nibbles of 0 to 15, are at
// most 16 * 15 * 127 = 30480; the bias of 8 comes off at the end.
template <size_t T>
inline void BlockSumsQ4(const uint8_t* lines, const QuantPairs* x, const int32_t (&quant_sums)[T],
                        int32_t (&sums)[T][kRows]) {
  for (int part = 0; part < kLineBytes / kVectorBytes; ++part) {
    Shorts products[T] = {};
    for (int i = 0; i < kQ4Lines; ++i) {
      const auto w =
          __builtin_bit_cast(Shorts, LoadLine(lines + i * kLineBytes + part * kVectorBytes));
      for (size_t t = 0; t < T; ++t) {
        products[t] += (w & 15) * Splat(x[t].even[i]) + ((w >> 8) & 15) * Splat(x[t].odd[i]);
        products[t] += ((w >> 4) & 15) * Splat(x[t].even[i + kQ4Lines]) +
                       ((w >> 12) & 15) * Splat(x[t].odd[i + kQ4Lines]);
      }
    }
    for (size_t t = 0; t < T; ++t) {
      const auto pairs = __builtin_bit_cast(Ints, products[t]);
      const Ints sum = ((pairs << 16) >> 16) + (pairs >> 16) - 8 * quant_sums[t];
      __builtin_memcpy(sums[t] + part * (kVectorBytes / 4), &sum, sizeof sum);
    }
  }
}

// seg256 over k, 8 blocks a segment, for 16 rows and T tokens from token `first` on.
template <GgmlType kType, size_t T>
inline void QuantGroup(const uint8_t* group, const Activations& x, int64_t first,
                       float (&sums)[T][kRows]) {
  constexpr bool kQ8 = kType == GgmlType::kQ8_0;
  const int32_t blocks = x.cols / kBlock;
  float chain[T][kRows];
  StartSums(chain, sums);
  for (int32_t b = 0; b < blocks; ++b) {
    const uint8_t* block = group + int64_t{b} * (kQ8 ? kQ8BlockBytes : kQ4BlockBytes);
    QuantPairs pairs[T];
    int32_t quant_sums[T];
    int64_t at[T];  // the block's index among all tokens'
    for (size_t t = 0; t < T; ++t) {
      at[t] = (first + static_cast<int64_t>(t)) * blocks + b;
      pairs[t] = SplitQuants(x.quants + at[t] * kBlock);
      quant_sums[t] = x.quant_sums[at[t]];
    }
    int32_t dots[T][kRows];
    if constexpr (kQ8) {
      BlockSumsQ8<T>(block + kScaleBytes, pairs, dots);
    } else {
      BlockSumsQ4<T>(block + kScaleBytes, pairs, quant_sums, dots);
    }
    uint16_t halves[kRows];
    __builtin_memcpy(halves, block, sizeof halves);
    float dw[kRows];
    for (int r = 0; r < kRows; ++r) dw[r] = WidenF16(halves[r]);
    for (size_t t = 0; t < T; ++t) {
      const float dx = x.scales[at[t]];
      float integers[kRows], scale[kRows];
      for (int r = 0; r < kRows; ++r) {
        integers[r] = static_cast<float>(dots[t][r]);
        scale[r] = dw[r] * dx;
      }
      FmaLanes<kRows>(integers, scale, chain[t], chain[t]);
    }
    if ((b + 1) % (kSegment / kBlock) == 0) CloseSegment(chain, sums);
  }
  if (blocks % (kSegment / kBlock) != 0) CloseSegment(chain, sums);
}

template <GgmlType kType, size_t T>
inline void MatmulTile(const PackedView& w, const Activations& x, int32_t g, int64_t first,
                       float* y, int64_t y_stride) {
  const uint8_t* group = w.bytes + g * w.group_bytes;
  const int32_t rows_left = w.rows - g * kRows;
  const int32_t rows = rows_left < kRows ? rows_left : kRows;
  float sums[T][kRows];
  if constexpr (kType == GgmlType::kQ8_0 || kType == GgmlType::kQ4_0) {
    QuantGroup<kType, T>(group, x, first, sums);
  } else {
    FloatGroup<kType, T>(group, x, first, sums);
  }
  for (size_t t = 0; t < T; ++t) {
    float* out = y + (first + static_cast<int64_t>(t)) * y_stride + int64_t{g} * kRows;
    for (int32_t r = 0; r < rows; ++r) out[r] = sums[t][r];
  }
}

template <GgmlType kType>
inline void MatmulOf(const PackedView& w, const Activations& x, int32_t group_begin,
                     int32_t group_end, float* y, int64_t y_stride) {
  for (int32_t g = group_begin; g < group_end; ++g) {
    int64_t t = 0;
    for (; t + 4 <= x.tokens; t += 4) MatmulTile<kType, 4>(w, x, g, t, y, y_stride);
    switch (x.tokens - t) {
      case 3:
        MatmulTile<kType, 3>(w, x, g, t, y, y_stride);
        break;
      case 2:
        MatmulTile<kType, 2>(w, x, g, t, y, y_stride);
        break;
      case 1:
        MatmulTile<kType, 1>(w, x, g, t, y, y_stride);
        break;
      default:
        break;
    }
  }
}

inline void Matmul(const PackedView& w, const Activations& x, int32_t group_begin,
                   int32_t group_end, float* y, int64_t y_stride) {
  switch (w.type) {
    case GgmlType::kF32:
      return MatmulOf<GgmlType::kF32>(w, x, group_begin, group_end, y, y_stride);
    case GgmlType::kF16:
      return MatmulOf<GgmlType::kF16>(w, x, group_begin, group_end, y, y_stride);
    case GgmlType::kBF16:
      return MatmulOf<GgmlType::kBF16>(w, x, group_begin, group_end, y, y_stride);
    case GgmlType::kQ8_0:
      return MatmulOf<GgmlType::kQ8_0>(w, x, group_begin, group_end, y, y_stride);
    case GgmlType::kQ4_0:
      return MatmulOf<GgmlType::kQ4_0>(w, x, group_begin, group_end, y, y_stride);
  }
}

inline void QuantizeActivations(const float* x, int32_t cols, int8_t* quants, float* scales,
                                int32_t* quant_sums) {
  for (int32_t b = 0; b < cols / kBlock; ++b) {
    const float* in = x + int64_t{b} * kBlock;
    int8_t* out = quants + int64_t{b} * kBlock;
    uint32_t top = 0;  // bits of max |x|: ordered as the values are, infinity and NaN last
    for (int i = 0; i < kBlock; ++i) {
      const uint32_t magnitude = BitsOf(in[i]) & 0x7fffffffu;
      top = magnitude > top ? magnitude : top;
    }
    const float amax = FloatOf(top);
    const float inverse = 127.0f / amax;  // infinite for amax 0 and for amax <= 127 * 2^-128
    const bool finite = top < 0x7f800000u;
    const bool regular = finite && inverse <= 0x1.fffffep+127f;
    const float id = regular ? inverse : 0.0f;
    int32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float value = finite ? in[i] : 0.0f;
      const float rounded = value * id + kRoundMagic;
      const auto q = static_cast<int32_t>(BitsOf(rounded) - BitsOf(kRoundMagic));
      out[i] = static_cast<int8_t>(q);
      sum += q;
    }
    scales[b] = regular ? amax / 127.0f : finite ? 0.0f : __builtin_nanf("");
    quant_sums[b] = sum;
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_
