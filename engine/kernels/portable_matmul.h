// matmul and activation quantization in portable C++: plain loops over the 16 rows of a group that
// a compiler turns into vectors of whatever width the translation unit is compiled for.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_MATMUL_H_

#include <cstdint>

#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {
namespace {

inline uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  __builtin_memcpy(&value, bytes, sizeof value);
  return value;
}

inline float LoadF32(const uint8_t* bytes) {
  float value;
  __builtin_memcpy(&value, bytes, sizeof value);
  return value;
}

// One weight of a float group, widened.
template <GgmlType kType>
inline float LoadWeight(const uint8_t* group, int64_t index) {
  if constexpr (kType == GgmlType::kF32) return LoadF32(group + index * 4);
  if constexpr (kType == GgmlType::kF16) return WidenF16(LoadU16(group + index * 2));
  if constexpr (kType == GgmlType::kBF16) return WidenBF16(LoadU16(group + index * 2));
}

// seg256 over k for 16 rows and one token; sums: [16].
template <GgmlType kType>
inline void FloatGroup(const uint8_t* group, int32_t cols, const float* x, float* sums) {
  for (int r = 0; r < kRows; ++r) sums[r] = -0.0f;  // -0 + p is p, for every p
  for (int32_t begin = 0; begin < cols; begin += kSegment) {
    const int32_t end = cols - begin < kSegment ? cols : begin + kSegment;
    float chain[kRows] = {};
    for (int32_t k = begin; k < end; ++k) {
      const float xk = x[k];
      for (int r = 0; r < kRows; ++r) {
        chain[r] = Fma(LoadWeight<kType>(group, int64_t{k} * kRows + r), xk, chain[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) sums[r] += chain[r];
  }
}

// Integer sums of one block for 16 rows: sums[r] = sum over k of w[r, k] * xq[k], exact.
inline void BlockSumsQ8(const uint8_t* lines, const int8_t* xq, int32_t* sums) {
  for (int r = 0; r < kRows; ++r) sums[r] = 0;
  for (int i = 0; i < kQ8Lines; ++i) {
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < 4; ++j) {
        sums[r] += (lines[i * kLineBytes + 4 * r + j] - 128) * xq[4 * i + j];
      }
    }
  }
}

inline void BlockSumsQ4(const uint8_t* lines, const int8_t* xq, int32_t* sums) {
  for (int r = 0; r < kRows; ++r) sums[r] = 0;
  for (int i = 0; i < kQ4Lines; ++i) {
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < 4; ++j) {
        const int byte = lines[i * kLineBytes + 4 * r + j];
        sums[r] += ((byte & 15) - 8) * xq[4 * i + j] + ((byte >> 4) - 8) * xq[16 + 4 * i + j];
      }
    }
  }
}

// seg256 over k, 8 blocks a segment, for 16 rows and one token; sums: [16].
template <GgmlType kType>
inline void QuantGroup(const uint8_t* group, int32_t cols, const int8_t* xq, const float* scales,
                       float* sums) {
  constexpr int32_t kBytes = kType == GgmlType::kQ8_0 ? kQ8BlockBytes : kQ4BlockBytes;
  constexpr int32_t kBlocksPerSegment = kSegment / kBlock;
  const int32_t blocks = cols / kBlock;
  for (int r = 0; r < kRows; ++r) sums[r] = -0.0f;  // -0 + p is p, for every p
  for (int32_t begin = 0; begin < blocks; begin += kBlocksPerSegment) {
    const int32_t end = blocks - begin < kBlocksPerSegment ? blocks : begin + kBlocksPerSegment;
    float chain[kRows] = {};
    for (int32_t b = begin; b < end; ++b) {
      const uint8_t* block = group + int64_t{b} * kBytes;
      int32_t dots[kRows];
      if constexpr (kType == GgmlType::kQ8_0) {
        BlockSumsQ8(block + kScaleBytes, xq + b * kBlock, dots);
      } else {
        BlockSumsQ4(block + kScaleBytes, xq + b * kBlock, dots);
      }
      const float dx = scales[b];
      for (int r = 0; r < kRows; ++r) {
        const float scale = WidenF16(LoadU16(block + 2 * r)) * dx;
        chain[r] = Fma(static_cast<float>(dots[r]), scale, chain[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) sums[r] += chain[r];
  }
}

template <GgmlType kType>
inline void MatmulOf(const PackedView& w, const Activations& x, int32_t group_begin,
                     int32_t group_end, float* y, int64_t y_stride) {
  for (int32_t g = group_begin; g < group_end; ++g) {
    const uint8_t* group = w.bytes + g * w.group_bytes;
    const int32_t rows_left = w.rows - g * kRows;
    const int32_t rows = rows_left < kRows ? rows_left : kRows;
    for (int32_t t = 0; t < x.tokens; ++t) {
      float sums[kRows];
      if constexpr (kType == GgmlType::kQ8_0 || kType == GgmlType::kQ4_0) {
        QuantGroup<kType>(group, w.cols, x.quants + int64_t{t} * w.cols,
                          x.scales + int64_t{t} * (w.cols / kBlock), sums);
      } else {
        FloatGroup<kType>(group, w.cols, x.values + int64_t{t} * w.cols, sums);
      }
      float* out = y + t * y_stride + int64_t{g} * kRows;
      for (int32_t r = 0; r < rows; ++r) out[r] = sums[r];
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
