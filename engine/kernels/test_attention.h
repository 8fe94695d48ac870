// Stored rows, and attention over them in the words of engine/ARITHMETIC.md, for tests.
#ifndef LOCKSTEP_ENGINE_KERNELS_TEST_ATTENTION_H_
#define LOCKSTEP_ENGINE_KERNELS_TEST_ATTENTION_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "caches/kv_cache.h"
#include "caches/random.h"
#include "engine/kernels.h"
#include "engine/kernels/test_inputs.h"
#include "engine/math.h"

namespace lockstep::kernels_test {

inline float StoredElement(RowType type, const std::byte* row, int64_t element) {
  if (type != RowType::kQ8_0 && type != RowType::kQ4_0) {
    return FloatElement(WeightTypeOf(type), row, element);
  }
  const bool q8 = type == RowType::kQ8_0;
  const std::byte* block = row + element / 32 * (q8 ? 34 : 18);
  const auto quant = static_cast<float>(BlockQuant(q8, block, static_cast<int>(element % 32)));
  return quant * HalfToFloat(LoadHalf(block));
}

// `length` rows of K and V; rows from `poison_from` on are NaN throughout.
struct Rows {
  AttentionShape shape;
  RowType key_type = RowType::kF32;
  RowType value_type = RowType::kF32;
  int32_t length = 0;
  std::vector<std::byte> keys;
  std::vector<std::byte> values;

  int64_t stride() const { return int64_t{shape.num_kv_heads} * shape.head_dim; }

  KvSegment Segment(int32_t first, int32_t count) const {
    return {.first = first,
            .count = count,
            .key_type = key_type,
            .value_type = value_type,
            .keys = keys.data() + first * RowBytes(key_type, stride()),
            .values = values.data() + first * RowBytes(value_type, stride())};
  }

  KvView Whole() const { return {.length = length, .segments = {Segment(0, length)}}; }

  float Key(int32_t p, int64_t e) const {
    return StoredElement(key_type, keys.data() + p * RowBytes(key_type, stride()), e);
  }
  float Value(int32_t p, int64_t e) const {
    return StoredElement(value_type, values.data() + p * RowBytes(value_type, stride()), e);
  }

  void PoisonFrom(int32_t first) { Poison(first, length); }

  void Poison(int32_t first, int32_t end) {
    const auto fill = [&](std::vector<std::byte>* bytes, RowType type) {
      std::fill(bytes->begin() + first * RowBytes(type, stride()),
                bytes->begin() + end * RowBytes(type, stride()), std::byte{0xff});
    };
    fill(&keys, key_type);
    fill(&values, value_type);
  }
};

inline Rows MakeRows(const AttentionShape& shape, RowType key_type, RowType value_type,
                     int32_t length, Random* random) {
  Rows rows;
  rows.shape = shape;
  rows.key_type = key_type;
  rows.value_type = value_type;
  rows.length = length;
  rows.keys = RandomWeights(WeightTypeOf(key_type), length * rows.stride(), random);
  rows.values = RandomWeights(WeightTypeOf(value_type), length * rows.stride(), random);
  return rows;
}

inline float Tree16(std::array<float, 16> a) {
  for (size_t width : {8u, 4u, 2u, 1u}) {
    for (size_t j = 0; j < width; ++j) a[j] += a[j + width];
  }
  return a[0];
}

inline std::vector<float> Reference(const Rows& rows, const std::vector<float>& q,
                                    int32_t visible) {
  const auto head_dim = static_cast<size_t>(rows.shape.head_dim);
  std::vector<float> out(static_cast<size_t>(rows.shape.num_heads) * head_dim);
  const int32_t from = rows.shape.window > 0 ? std::max(0, visible - rows.shape.window) : 0;
  for (int32_t h = 0; h < rows.shape.num_heads; ++h) {
    const int32_t kv_head = h / (rows.shape.num_heads / rows.shape.num_kv_heads);
    const int64_t element = int64_t{kv_head} * rows.shape.head_dim;
    const float* query = &q[static_cast<size_t>(h) * head_dim];
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    std::vector<float> e(static_cast<size_t>(visible));
    float top = -std::numeric_limits<float>::infinity();
    for (int32_t p = from; p < visible; ++p) {
      std::array<float, 16> lanes = {};
      for (size_t d = 0; d < head_dim; ++d) {
        lanes[d % 16] =
            std::fma(query[d], rows.Key(p, element + static_cast<int64_t>(d)), lanes[d % 16]);
      }
      e[static_cast<size_t>(p)] = Tree16(lanes) * scale;
      if (const float cap = rows.shape.cap; cap != 0) {
        e[static_cast<size_t>(p)] = CanonicalTanh(e[static_cast<size_t>(p)] / cap) * cap;
      }
      if (e[static_cast<size_t>(p)] > top) top = e[static_cast<size_t>(p)];
    }
    std::array<float, 16> lanes = {};
    for (auto p = static_cast<size_t>(from); p < e.size(); ++p) {
      e[p] = CanonicalExp(e[p] - top);
      lanes[p % 16] += e[p];
    }
    const float sum = Tree16(lanes);
    for (size_t d = 0; d < head_dim; ++d) {
      float total = 0, partial = 0;
      for (int32_t p = from; p < visible; ++p) {
        partial = std::fma(e[static_cast<size_t>(p)],
                           rows.Value(p, element + static_cast<int64_t>(d)), partial);
        if (p % 256 == 255 || p + 1 == visible) {
          total = p / 256 == from / 256 ? partial : total + partial;
          partial = 0;
        }
      }
      out[static_cast<size_t>(h) * head_dim + d] = total / sum;
    }
  }
  return out;
}

}  // namespace lockstep::kernels_test

#endif  // LOCKSTEP_ENGINE_KERNELS_TEST_ATTENTION_H_
