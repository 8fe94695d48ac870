#include "engine/model/team_kernels.h"

#include <algorithm>

#include "caches/check.h"

namespace lockstep {
namespace {

constexpr int32_t kGroupRows = PackedMatrix::kGroupRows;
constexpr int32_t kBlock = 32;  // elements of an ActivationBlock

// Tokens whose gate and up rows stay in the second-level cache until the gate reads them.
constexpr int32_t kGateTokens = 96;

// Tokens [begin, end) of x.
Activations TokensOf(const Activations& x, int32_t begin, int32_t end) {
  Activations some = x;
  some.tokens = end - begin;
  if (x.values != nullptr) some.values += int64_t{begin} * x.cols;
  if (x.blocks != nullptr) some.blocks += int64_t{begin} * (x.cols / kBlock);
  return some;
}

// Outputs [begin, end) of groups [group_begin, group_end).
struct Outputs {
  Outputs(const PackedMatrix& w, int64_t group_begin, int64_t group_end)
      : begin(static_cast<int32_t>(group_begin * kGroupRows)),
        end(static_cast<int32_t>(std::min<int64_t>(group_end * kGroupRows, w.rows()))) {}
  int32_t begin;
  int32_t end;
};

// What one head costs: the rows that its queries read.
int64_t CostOf(const AttentionTile& tile, const AttentionJob& job) {
  int64_t rows = 0;
  for (int32_t i = 0; i < tile.count; ++i) {
    const int32_t visible = job.visible[tile.first + i];
    rows += job.shape.window > 0 ? std::min(visible, job.shape.window) : visible;
  }
  return rows;
}

}  // namespace

void TeamKernels::ReserveScratch(const AttentionShape& shape, int32_t visible) {
  const int64_t floats = (AttentionScratch(shape, visible) + 15) / 16 * 16;  // whole cache lines
  if (floats <= scratch_floats_) return;
  scratch_floats_ = 0;
  scratch_ = AlignedBuffer<float>(floats * team_.size());
  scratch_floats_ = floats;
}

void TeamKernels::Multiply(const Activations& x, std::span<const Product> products) {
  team_.Run([&](int32_t part) { MultiplyPart(x, products, part); });
}

void TeamKernels::MultiplyPart(const Activations& x, std::span<const Product> products,
                               int32_t part) {
  int64_t groups = 0;
  for (const Product& product : products) groups += product.w->groups();
  const PartRange range = PartOf(groups, part, team_.size());
  int64_t first = 0;  // group of this product among all
  for (const Product& product : products) {
    const PackedMatrix& w = *product.w;
    const int64_t begin = std::max<int64_t>(range.begin - first, 0);
    const int64_t end = std::min<int64_t>(range.end - first, w.groups());
    first += w.groups();
    if (begin >= end) continue;
    kernels_.matmul(w, x, static_cast<int32_t>(begin), static_cast<int32_t>(end), product.y);
    const Outputs outputs(w, begin, end);
    for (int32_t t = 0; t < x.tokens; ++t) {
      float* y = product.y[t] + outputs.begin;
      const int32_t count = outputs.end - outputs.begin;
      if (product.bias != nullptr) kernels_.add(product.bias + outputs.begin, count, y);
      if (product.scale != 1.0f) kernels_.scale(product.scale, count, y);
      if (product.residual != nullptr) {
        kernels_.add(y, count, product.residual[t] + outputs.begin);
      }
    }
  }
}

void TeamKernels::Gate(const Activations& x, const GatedProduct& product) {
  LS_CHECK(product.gate->rows() == product.up->rows(), "gate of {} rows, up of {}",
           product.gate->rows(), product.up->rows());
  team_.Run([&](int32_t part) { GatePart(x, product, part); });
}

void TeamKernels::GatePart(const Activations& x, const GatedProduct& product, int32_t part) {
  const PackedMatrix& gate = *product.gate;
  // Two groups are a block of the next product's input, which one thread has to quantize.
  const PartRange range = PartOf(gate.groups(), part, team_.size(), kBlock / kGroupRows);
  if (range.empty()) return;
  const auto group_begin = static_cast<int32_t>(range.begin);
  const auto group_end = static_cast<int32_t>(range.end);
  const Outputs outputs(gate, group_begin, group_end);
  const auto bend =
      product.activation == Activation::kGelu ? kernels_.gelu_gate : kernels_.silu_gate;
  int32_t begin = 0;  // equal blocks: a short last one would read the weights for a few tokens
  for (int32_t blocks = (x.tokens + kGateTokens - 1) / kGateTokens; blocks > 0; --blocks) {
    const int32_t end = begin + (x.tokens - begin + blocks - 1) / blocks;
    const Activations some = TokensOf(x, begin, end);
    kernels_.matmul(gate, some, group_begin, group_end, product.gate_rows + begin);
    kernels_.matmul(*product.up, some, group_begin, group_end, product.up_rows + begin);
    for (int32_t t = begin; t < end; ++t) {
      float* out = product.gate_rows[t] + outputs.begin;
      const int32_t count = outputs.end - outputs.begin;
      bend(out, product.up_rows[t] + outputs.begin, count, out);
      if (product.blocks == nullptr) continue;
      kernels_.quantize_activations(
          out, count, product.blocks + (int64_t{t} * gate.rows() + outputs.begin) / kBlock);
    }
    begin = end;
  }
}

void TeamKernels::Attend(const AttentionJob& job) {
  int64_t cost = 0;
  for (const AttentionTile& tile : job.tiles) {
    cost += CostOf(tile, job) * job.shape.num_heads;
  }
  team_.Run([&](int32_t part) { AttendPart(job, cost, part); });
}

// A pair belongs to the part in whose share of the cost its middle lies: every pair to exactly one,
// and neighbours to the same or the next.
void TeamKernels::AttendPart(const AttentionJob& job, int64_t cost, int32_t part) {
  float* scratch = scratch_.data() + scratch_floats_ * part;
  int64_t before = 0;  // cost of the pairs before
  for (const AttentionTile& tile : job.tiles) {
    const int64_t each = CostOf(tile, job);
    int32_t head_begin = 0;
    int32_t head_end = 0;
    for (int32_t head = 0; head < job.shape.num_heads; ++head) {
      const int64_t middle = 2 * (before + head * each) + each;
      const int64_t owner = middle * team_.size() / (2 * cost);
      if (owner < part) head_begin = head + 1;
      if (owner <= part) head_end = head + 1;
    }
    before += job.shape.num_heads * each;
    if (head_begin < head_end) AttendHeads(job, tile, head_begin, head_end, scratch);
  }
}

void TeamKernels::AttendHeads(const AttentionJob& job, const AttentionTile& tile,
                              int32_t head_begin, int32_t head_end, float* scratch) {
  const int32_t dim = job.shape.head_dim;
  const int64_t width = int64_t{job.shape.num_heads} * dim;
  const AttentionQueries queries = {.count = tile.count,
                                    .q = job.q + tile.first * width,
                                    .out = job.out + tile.first * width,
                                    .visible = job.visible + tile.first};
  kernels_.attention(job.shape, queries, *tile.view, head_begin, head_end, scratch);
  if (job.blocks == nullptr) return;
  for (int64_t row = tile.first; row < tile.first + tile.count; ++row) {
    const int64_t at = row * width + int64_t{head_begin} * dim;
    kernels_.quantize_activations(job.out + at, (head_end - head_begin) * dim,
                                  job.blocks + at / kBlock);
  }
}

}  // namespace lockstep
