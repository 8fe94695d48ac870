// Kernels that get the order of a reduction wrong, each in its own way.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <vector>

#include "caches/check.h"
#include "engine/math.h"
#include "oracle/matrix_controls.h"

namespace lockstep {
namespace {

const KernelTable& Scalar() {
  static const KernelTable& table = SelectKernels("scalar");
  return table;
}

// The activations with one half of every token zeroed: what is below `cut`, or the rest.
class MaskedActivations {
 public:
  enum class Keeps : uint8_t { kBelow, kFrom };

  MaskedActivations(const Activations& x, bool quantized, Keeps keeps,
                    const std::function<int32_t(int32_t token)>& cut)
      : view_(x) {
    const auto cols = static_cast<size_t>(x.cols);
    const auto tokens = static_cast<size_t>(x.tokens);
    if (quantized) {
      blocks_.assign(x.blocks, x.blocks + tokens * cols / 32);
      view_.blocks = blocks_.data();
    } else {
      values_.assign(x.values, x.values + tokens * cols);
      view_.values = values_.data();
    }
    for (size_t t = 0; t < tokens; ++t) {
      const auto at = static_cast<size_t>(cut(static_cast<int32_t>(t)));
      const size_t begin = t * cols + (keeps == Keeps::kFrom ? 0 : at);
      const size_t end = t * cols + (keeps == Keeps::kFrom ? at : cols);
      if (quantized) {
        for (size_t b = begin / 32; b < end / 32; ++b) blocks_[b] = Silent(blocks_[b].scale);
      } else {
        for (size_t i = begin; i < end; ++i) values_[i] = 0.0f;
      }
    }
  }

  const Activations& view() const { return view_; }

 private:
  static ActivationBlock Silent(float scale) { return {.quants = {}, .scale = scale, .offset = 0}; }

  std::vector<ActivationBlock> blocks_;
  std::vector<float> values_;
  Activations view_;
};

// matmul in two parts, [0, cut) and [cut, cols) of the reduction, added at the end: what a kernel
// does that gives the halves of a long reduction to two workers. `part` in [0, 7) places the cut.
void SplitMatmul(const PackedMatrix& w, const Activations& x, int32_t group_begin,
                 int32_t group_end, float* const* y,
                 const std::function<int32_t(int32_t token)>& part) {
  const int32_t grain = w.quantized() ? 32 : 1;
  const auto cut = [&](int32_t token) { return x.cols * part(token) / 8 / grain * grain; };
  const MaskedActivations low(x, w.quantized(), MaskedActivations::Keeps::kBelow, cut);
  const MaskedActivations high(x, w.quantized(), MaskedActivations::Keeps::kFrom, cut);
  Scalar().matmul(w, low.view(), group_begin, group_end, y);
  std::vector<float> sums(static_cast<size_t>(x.tokens) * static_cast<size_t>(w.rows()));
  std::vector<float*> rows;
  rows.reserve(static_cast<size_t>(x.tokens));
  for (int32_t t = 0; t < x.tokens; ++t) rows.push_back(sums.data() + int64_t{t} * w.rows());
  Scalar().matmul(w, high.view(), group_begin, group_end, rows.data());
  const int32_t begin = group_begin * PackedMatrix::kGroupRows;
  const int32_t end = std::min(w.rows(), group_end * PackedMatrix::kGroupRows);
  for (int32_t t = 0; t < x.tokens; ++t) {
    for (int32_t r = begin; r < end; ++r) y[t][r] += rows[static_cast<size_t>(t)][r];
  }
}

void TokenCountMatmul(const PackedMatrix& w, const Activations& x, int32_t group_begin,
                      int32_t group_end, float* const* y) {
  SplitMatmul(w, x, group_begin, group_end, y, [&](int32_t) { return x.tokens % 7; });
}

void TokenOrderMatmul(const PackedMatrix& w, const Activations& x, int32_t group_begin,
                      int32_t group_end, float* const* y) {
  SplitMatmul(w, x, group_begin, group_end, y, [](int32_t token) { return token % 7; });
}

void ThreadRangeMatmul(const PackedMatrix& w, const Activations& x, int32_t group_begin,
                       int32_t group_end, float* const* y) {
  const int32_t part = group_end - group_begin == w.groups() ? 0 : 1 + group_begin % 6;
  SplitMatmul(w, x, group_begin, group_end, y, [&](int32_t) { return part; });
}

void ProcessMatmul(const PackedMatrix& w, const Activations& x, int32_t group_begin,
                   int32_t group_end, float* const* y) {
  Scalar().matmul(w, x, group_begin, group_end, y);
  if (group_begin == group_end || x.tokens == 0) return;
  float& first = y[0][int64_t{group_begin} * PackedMatrix::kGroupRows];
  first = std::bit_cast<float>(std::bit_cast<uint32_t>(first) ^
                               (static_cast<uint32_t>(getpid()) & 0xffffu));
}

// Rotation with two roundings where one is defined, of either pairing.
template <bool kHalves>
void UnfusedRope(float* x, int32_t num_heads, int32_t head_dim, int32_t rope_dim, const float* cos,
                 const float* sin) {
  for (int32_t head = 0; head < num_heads; ++head) {
    float* row = x + int64_t{head} * head_dim;
    for (int32_t i = 0; i < rope_dim / 2; ++i) {
      float& first = row[kHalves ? i : int64_t{i} * 2];
      float& second = row[kHalves ? i + rope_dim / 2 : int64_t{i} * 2 + 1];
      const float a = first;
      const float b = second;
      first = a * cos[i] - b * sin[i];
      second = a * sin[i] + b * cos[i];
    }
  }
}

// What online softmax keeps between segments.
struct Running {
  float top = -std::numeric_limits<float>::infinity();
  float sum = 0;
  std::vector<float> out;
};

// One segment's rows, softmax by its own maximum, joined to what came before it.
void JoinSegment(const float* q, int32_t dim, int64_t element, int64_t stride, const KvRows& rows,
                 int32_t count, Running* running) {
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  std::vector<float> scores(static_cast<size_t>(count));
  float top = running->top;
  for (int32_t i = 0; i < count; ++i) {
    const float* key = rows.keys.data() + i * stride + element;
    float score = 0;
    for (int32_t d = 0; d < dim; ++d) score += q[d] * key[d];
    scores[static_cast<size_t>(i)] = score * scale;
    top = std::max(top, score * scale);
  }
  const float rescale = CanonicalExp(running->top - top);
  running->sum *= rescale;
  for (float& value : running->out) value *= rescale;
  for (int32_t i = 0; i < count; ++i) {
    const float* value = rows.values.data() + i * stride + element;
    const float weight = CanonicalExp(scores[static_cast<size_t>(i)] - top);
    running->sum += weight;
    for (int32_t d = 0; d < dim; ++d) running->out[static_cast<size_t>(d)] += weight * value[d];
  }
  running->top = top;
}

void SegmentAttention(const AttentionShape& shape, const AttentionQueries& queries,
                      const KvView& view, int32_t head_begin, int32_t head_end, float*) {
  const int64_t stride = int64_t{shape.num_kv_heads} * shape.head_dim;
  std::vector<KvRows> rows;
  for (KvSegment segment : view.segments) {
    segment.first = 0;
    rows.push_back(DecodeRows({segment.count, {segment}}, stride));
  }
  const int64_t width = int64_t{shape.num_heads} * shape.head_dim;
  for (int32_t i = 0; i < queries.count; ++i) {
    for (int32_t head = head_begin; head < head_end; ++head) {
      const int64_t at = i * width + int64_t{head} * shape.head_dim;
      const int32_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
      Running running;
      running.out.resize(static_cast<size_t>(shape.head_dim));
      for (size_t s = 0; s < rows.size(); ++s) {
        const KvSegment& segment = view.segments[s];
        const int32_t count = std::min(segment.count, queries.visible[i] - segment.first);
        if (count <= 0) break;
        JoinSegment(queries.q + at, shape.head_dim, int64_t{kv_head} * shape.head_dim, stride,
                    rows[s], count, &running);
      }
      for (int32_t d = 0; d < shape.head_dim; ++d) {
        queries.out[at + d] = running.out[static_cast<size_t>(d)] / running.sum;
      }
    }
  }
}

KernelTable Named(std::string_view name) {
  KernelTable table = Scalar();
  table.name = name;
  return table;
}

KernelTable WithMatmul(std::string_view name, decltype(KernelTable::matmul) matmul) {
  KernelTable table = Named(name);
  table.matmul = matmul;
  return table;
}

}  // namespace

const KernelTable* TokenCountKernels() {
  static const KernelTable table = WithMatmul("token-count", TokenCountMatmul);
  return &table;
}

const KernelTable* TokenOrderKernels() {
  static const KernelTable table = WithMatmul("token-order", TokenOrderMatmul);
  return &table;
}

const KernelTable* ThreadRangeKernels() {
  static const KernelTable table = WithMatmul("thread-range", ThreadRangeMatmul);
  return &table;
}

const KernelTable* ProcessKernels() {
  static const KernelTable table = WithMatmul("process-id", ProcessMatmul);
  return &table;
}

const KernelTable* SegmentKernels() {
  static const KernelTable table = [] {
    KernelTable made = Named("segment-softmax");
    made.attention = SegmentAttention;
    return made;
  }();
  return &table;
}

const KernelTable* UnfusedKernels() {
  static const KernelTable table = [] {
    KernelTable made = Named("unfused-rope");
    made.rope_interleaved = UnfusedRope<false>;
    made.rope_halves = UnfusedRope<true>;
    return made;
  }();
  return &table;
}

}  // namespace lockstep
