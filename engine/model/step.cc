#include "engine/model/step.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

float* RowOf(std::span<float> rows, int64_t index, int64_t width) {
  return rows.data() + index * width;
}

}  // namespace

void StepRunner::Run(std::span<const StepPiece> pieces) {
  for (const StepPiece& piece : pieces) {
    in_ = piece;
    n_ = static_cast<int32_t>(piece.tokens.size());
    Embed();
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
      AttentionBlock(layer);
      FfnBlock(layer);
    }
    if (in_.last) Logits();
  }
}

void StepRunner::Embed() {
  const std::span<float> residual = Rows(ws_.residual, config_.dim);
  const auto dim = static_cast<size_t>(config_.dim);
  for (size_t t = 0; t < in_.tokens.size(); ++t) {
    model_.Embed(in_.tokens[t], residual.subspan(t * dim, dim));
  }
  Trace(-1, Stage::kEmbedding, residual, config_.dim);
}

void StepRunner::AttentionBlock(int32_t layer) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  const std::span<float> normed = Rows(ws_.normed, config_.dim);
  NormRows(Rows(ws_.residual, config_.dim), w.attn_norm, normed);
  Trace(layer, Stage::kAttnNorm, normed, config_.dim);

  const KvRowsInPlace kv = ReserveRows(layer);
  ProjectAndRotate(layer, kv);
  StoreRows(layer, kv);
  Attend(layer);

  const std::span<float> attention = Rows(ws_.attention, config_.q_dim());
  const std::span<float> projected = Rows(ws_.projected, config_.dim);
  Matmul(w.wo, Prepare(attention, n_, config_.q_dim(), w.wo.quantized()), projected);
  AddToResidual(projected);
  Trace(layer, Stage::kAttnOut, Rows(ws_.residual, config_.dim), config_.dim);
}

void StepRunner::FfnBlock(int32_t layer) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  const std::span<float> normed = Rows(ws_.normed, config_.dim);
  NormRows(Rows(ws_.residual, config_.dim), w.ffn_norm, normed);
  Trace(layer, Stage::kFfnNorm, normed, config_.dim);

  const std::span<float> gate = Rows(ws_.gate, config_.ffn_dim);
  const std::span<float> up = Rows(ws_.up, config_.ffn_dim);
  const Activations input =
      Prepare(normed, n_, config_.dim, w.w_gate.quantized() || w.w_up.quantized());
  Matmul(w.w_gate, input, gate);
  Matmul(w.w_up, input, up);
  for (int32_t t = 0; t < n_; ++t) {
    float* row = RowOf(gate, t, config_.ffn_dim);
    kernels_.silu_gate(row, RowOf(up, t, config_.ffn_dim), config_.ffn_dim, row);
  }
  Trace(layer, Stage::kFfnHidden, gate, config_.ffn_dim);

  const std::span<float> projected = Rows(ws_.projected, config_.dim);
  Matmul(w.w_down, Prepare(gate, n_, config_.ffn_dim, w.w_down.quantized()), projected);
  AddToResidual(projected);
  Trace(layer, Stage::kFfnOut, Rows(ws_.residual, config_.dim), config_.dim);
}

void StepRunner::Logits() {
  const PackedMatrix& output = model_.output();
  const std::span<float> final = ws_.final.span();
  kernels_.rms_norm(RowOf(ws_.residual.span(), n_ - 1, config_.dim), model_.output_norm().data(),
                    config_.dim, config_.rms_eps, final.data());
  in_.positions = in_.positions.last(1);
  Trace(config_.num_layers, Stage::kFinalNorm, final, config_.dim);
  const auto width = static_cast<size_t>(config_.vocab_size);
  const auto logits = ws_.logits.span().subspan(static_cast<size_t>(in_.sequence) * width, width);
  Matmul(output, Prepare(final, 1, config_.dim, output.quantized()), logits);
  Trace(config_.num_layers, Stage::kLogits, logits, config_.vocab_size);
}

StepRunner::KvRowsInPlace StepRunner::ReserveRows(int32_t layer) {
  const KvRowsInPlace scratch{Rows(ws_.key, config_.kv_dim()), Rows(ws_.value, config_.kv_dim()),
                              false};
  if (in_.cache == nullptr) return scratch;
  const std::optional<KvSlot> slot = in_.cache->TryReserveSlot(layer, in_.positions);
  if (!slot) return scratch;
  if (slot->keys.size() != scratch.keys.size() || slot->values.size() != scratch.values.size()) {
    throw BrokenCache(
        layer, fmt::format("the slot has {} and {} floats, {} rows need {}", slot->keys.size(),
                           slot->values.size(), n_, scratch.keys.size()));
  }
  return {slot->keys, slot->values, true};
}

void StepRunner::ProjectAndRotate(int32_t layer, const KvRowsInPlace& kv) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  const std::span<float> query = Rows(ws_.query, config_.q_dim());
  const Activations input = Prepare(Rows(ws_.normed, config_.dim), n_, config_.dim,
                                    w.wq.quantized() || w.wk.quantized() || w.wv.quantized());
  Project(layer, Projection::kQuery, w.wq, w.bq, input, query);
  Project(layer, Projection::kKey, w.wk, w.bk, input, kv.keys);
  Project(layer, Projection::kValue, w.wv, w.bv, input, kv.values);
  Trace(layer, Stage::kQuery, query, config_.q_dim());
  Trace(layer, Stage::kKey, kv.keys, config_.kv_dim());
  Trace(layer, Stage::kValue, kv.values, config_.kv_dim());

  NormHeads(query, config_.num_heads, w.q_norm);
  NormHeads(kv.keys, config_.num_kv_heads, w.k_norm);
  Rotate(query, config_.num_heads);
  Rotate(kv.keys, config_.num_kv_heads);
  Trace(layer, Stage::kQueryRope, query, config_.q_dim());
  Trace(layer, Stage::kKeyRope, kv.keys, config_.kv_dim());
}

void StepRunner::StoreRows(int32_t layer, const KvRowsInPlace& kv) {
  if (in_.cache == nullptr) return;
  if (kv.in_cache) {
    in_.cache->CommitSlot(layer, in_.positions);
  } else {
    in_.cache->Update(layer, in_.positions, kv.keys, kv.values);
  }
}

void StepRunner::Attend(int32_t layer) {
  const AttentionShape shape{config_.num_heads, config_.num_kv_heads, config_.head_dim};
  const std::span<float> query = Rows(ws_.query, config_.q_dim());
  const std::span<float> out = Rows(ws_.attention, config_.q_dim());
  if (in_.trace != nullptr) TraceCacheRows(layer);
  const bool view_per_query = in_.cache != nullptr && in_.cache->view_depends_on_query();
  if (!view_per_query) ReadView(layer, in_.positions.back(), &view_);
  for (int32_t t = 0; t < n_; ++t) {
    const int32_t position = in_.positions[static_cast<size_t>(t)];
    if (view_per_query) ReadView(layer, position, &view_);
    const int32_t visible = position + 1;
    const AttentionQueries queries = {.count = 1,
                                      .q = RowOf(query, t, config_.q_dim()),
                                      .out = RowOf(out, t, config_.q_dim()),
                                      .visible = &visible};
    kernels_.attention(shape, queries, view_, 0, shape.num_heads, ws_.scratch.data());
  }
  Trace(layer, Stage::kAttention, out, config_.q_dim());
}

void StepRunner::ReadView(int32_t layer, int32_t position, KvView* view) const {
  if (in_.cache == nullptr) {
    view->length = n_;
    view->segments.assign(
        1, {0, n_, RowType::kF32, RowType::kF32, reinterpret_cast<const std::byte*>(ws_.key.data()),
            reinterpret_cast<const std::byte*>(ws_.value.data())});
    return;
  }
  if (in_.cache->view_depends_on_query()) {
    in_.cache->ViewForQuery(layer, position, view);
  } else {
    in_.cache->View(layer, view);
  }
  // A kernel reads as many rows as it is told to: rows that are not there must not be asked for.
  if (view->length <= position) {
    throw BrokenCache(layer, fmt::format("it shows {} rows after the write of position {}",
                                         view->length, position));
  }
}

void StepRunner::Project(int32_t layer, Projection projection, const PackedMatrix& w,
                         const std::vector<float>& bias, const Activations& input,
                         std::span<float> out) {
  Matmul(w, input, out);
  if (!bias.empty()) {
    for (int32_t t = 0; t < n_; ++t) {
      kernels_.add(bias.data(), w.rows(), RowOf(out, t, w.rows()));
    }
  }
  if (hook_ != nullptr) hook_->Apply(layer, projection, Rows(ws_.normed, config_.dim), out, n_);
}

void StepRunner::NormHeads(std::span<float> rows, int32_t heads, const std::vector<float>& weight) {
  if (weight.empty()) return;
  for (int64_t head = 0; head < int64_t{n_} * heads; ++head) {
    float* row = RowOf(rows, head, config_.head_dim);
    kernels_.rms_norm(row, weight.data(), config_.head_dim, config_.rms_eps, row);
  }
}

void StepRunner::Rotate(std::span<float> rows, int32_t heads) {
  const int64_t width = int64_t{heads} * config_.head_dim;
  for (int32_t t = 0; t < n_; ++t) {
    const int32_t position = in_.positions[static_cast<size_t>(t)];
    kernels_.rope_interleaved(RowOf(rows, t, width), heads, config_.head_dim, config_.rope_dim,
                              ws_.rope().cos(position).data(), ws_.rope().sin(position).data());
  }
}

// The rows of this step as the layer's view shows them: a view of these rows alone, decoded.
// Only tracing comes here, so it may allocate.
void StepRunner::TraceCacheRows(int32_t layer) {
  KvView whole;
  if (in_.cache != nullptr) {
    in_.cache->View(layer, &whole);
  } else {
    ReadView(layer, in_.positions.back(), &whole);
  }
  const int64_t stride = config_.kv_dim();
  KvView step;
  auto segment = whole.segments.begin();
  for (int32_t position : in_.positions) {
    while (segment != whole.segments.end() && position >= segment->first + segment->count) {
      ++segment;
    }
    if (segment == whole.segments.end()) {
      throw BrokenCache(layer, fmt::format("it shows {} rows after the write of position {}",
                                           whole.length, position));
    }
    KvSegment row = *segment;
    row.keys += (position - segment->first) * RowBytes(row.key_type, stride);
    row.values += (position - segment->first) * RowBytes(row.value_type, stride);
    row.first = step.length++;
    row.count = 1;
    step.segments.push_back(row);
  }
  const KvRows rows = DecodeRows(step, stride);
  Trace(layer, Stage::kCacheKey, rows.keys, stride);
  Trace(layer, Stage::kCacheValue, rows.values, stride);
}

Activations StepRunner::Prepare(std::span<const float> rows, int32_t n, int32_t cols,
                                bool quantize) {
  Activations x;
  x.tokens = n;
  x.cols = cols;
  x.values = rows.data();
  if (!quantize) return x;
  const int32_t blocks = cols / 32;
  for (int64_t t = 0; t < n; ++t) {
    kernels_.quantize_activations(rows.data() + t * cols, cols, ws_.blocks.data() + t * blocks);
  }
  x.blocks = ws_.blocks.data();
  return x;
}

void StepRunner::Matmul(const PackedMatrix& w, const Activations& x, std::span<float> out) {
  rows_.clear();
  for (int32_t t = 0; t < x.tokens; ++t) rows_.push_back(RowOf(out, t, w.rows()));
  kernels_.matmul(w, x, 0, w.groups(), rows_.data());
}

void StepRunner::NormRows(std::span<const float> rows, const std::vector<float>& weight,
                          std::span<float> out) const {
  for (int64_t t = 0; t < n_; ++t) {
    kernels_.rms_norm(rows.data() + t * config_.dim, weight.data(), config_.dim, config_.rms_eps,
                      out.data() + t * config_.dim);
  }
}

void StepRunner::AddToResidual(std::span<const float> rows) {
  for (int64_t t = 0; t < n_; ++t) {
    kernels_.add(rows.data() + t * config_.dim, config_.dim, ws_.residual.data() + t * config_.dim);
  }
}

}  // namespace lockstep
