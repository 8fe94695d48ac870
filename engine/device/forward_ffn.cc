// What a layer on a device adds to the residual stream: projections back into it, the feed-forward
// network, experts, and what adapters add to each.
#include <algorithm>

#include "engine/device/forward.h"

namespace lockstep::device {

bool DeviceForward::Adapts(int32_t layer, AdapterTarget target) const {
  for (const Piece& piece : pieces_) {
    for (const AppliedAdapter& applied : piece.in.adapters) {
      if (applied.scale != 0.0f && applied.adapter->Find(layer, target) != nullptr) return true;
    }
  }
  return false;
}

void DeviceForward::AddAdapters(int32_t layer, AdapterTarget target, const DeviceBuffer<float>& x,
                                const DeviceBuffer<float>& y) {
  for (const Piece& piece : pieces_) {
    for (const AppliedAdapter& applied : piece.in.adapters) {
      const LoraPair* pair = applied.adapter->Find(layer, target);
      if (pair == nullptr || applied.scale == 0.0f) continue;
      const int64_t inputs = pair->a.cols();
      const int64_t outputs = pair->b.rows();
      adapters_.Add(applied, layer, target, piece.count,
                    x.part(piece.first * inputs, piece.count * inputs),
                    y.part(piece.first * outputs, piece.count * outputs));
    }
  }
}

void DeviceForward::AddToResidual(int32_t layer, AdapterTarget target, const UploadedMatrix& w,
                                  const DeviceFloats& norm, const DeviceBuffer<float>& x) {
  const int64_t values = int64_t{n_} * config_.dim;
  const Global<float> residual = residual_.part(0, values);
  const Global<float> projected = projected_.part(0, values);
  const bool adapts = Adapts(layer, target);
  const bool alone = norm.empty() && !adapts;  // then the product adds it
  MatMulArgs out = ProductOf(w, x);
  out.scale = adapts ? 1.0f : config_.residual_scale;
  if (alone) {
    out.residual = residual;
  } else {
    out.y = projected;
  }
  MatMul(*stream_, out);
  if (alone) return;
  if (adapts) {
    AddAdapters(layer, target, x, projected_);
    ScaleAndAdd(*stream_, projected, values, config_.residual_scale,
                norm.empty() ? residual : Global<float>{});
  }
  if (norm.empty()) return;
  RmsNorm(*stream_, {.x = projected,
                     .weight = norm.all(),
                     .rows = n_,
                     .n = config_.dim,
                     .eps = config_.rms_eps,
                     .y = projected,
                     .blocks = {},
                     .residual = residual});
}

void DeviceForward::FeedForward(int32_t layer) {
  const DeviceLayer& w = weights_of(layer);
  const int64_t hidden = int64_t{n_} * config_.ffn_dim;
  NormRows(w.ffn_norm, w.w_gate.quantized() || w.w_up.quantized());
  Trace(layer, Stage::kFfnNorm, normed_, config_.dim);
  MatMulArgs gate = ProductOf(w.w_gate, normed_);
  gate.y = gate_.part(0, hidden);
  MatMul(*stream_, gate);
  MatMulArgs up = ProductOf(w.w_up, normed_);
  up.y = up_.part(0, hidden);
  MatMul(*stream_, up);
  AddAdapters(layer, AdapterTarget::kGate, normed_, gate_);
  AddAdapters(layer, AdapterTarget::kUp, normed_, up_);
  const auto bend = config_.activation == Activation::kGelu ? GeluGate : SiluGate;
  bend(*stream_, gate_.part(0, hidden), up_.part(0, hidden), n_, config_.ffn_dim,
       gate_.part(0, hidden),
       w.w_down.quantized() ? hidden_blocks_.part(0, QuantizedBytes(n_, config_.ffn_dim))
                            : Global<uint8_t>{});
  Trace(layer, Stage::kFfnHidden, gate_, config_.ffn_dim);
  AddToResidual(layer, AdapterTarget::kDown, w.w_down, w.post_ffn_norm, gate_);
  Trace(layer, Stage::kFfnOut, residual_, config_.dim);
}

void DeviceForward::FeedExperts(int32_t layer) {
  const DeviceLayer& w = weights_of(layer);
  const int64_t values = int64_t{n_} * config_.dim;
  const int64_t shared = config_.shared_dim > 0 ? 1 : 0;
  NormRows(w.ffn_norm, w.moe.quantized());
  Trace(layer, Stage::kFfnNorm, normed_, config_.dim);
  const NormedRows x = {.count = n_,
                        .values = normed_.part(0, values),
                        .blocks = w.moe.quantized()
                                      ? blocks_.part(0, QuantizedBytes(n_, config_.dim))
                                      : Global<uint8_t>{}};
  experts_.Route(*stream_, w.moe, x);
  TraceJoined(layer, Stage::kFfnRouter, {experts_.router(), config_.num_experts},
              {experts_.shared_logit(), shared});
  experts_.Gate(*stream_, w.moe, x);
  TraceJoined(layer, Stage::kFfnHidden,
              {experts_.hidden(), int64_t{config_.experts_used} * config_.expert_dim},
              {experts_.shared_hidden(), config_.shared_dim});
  experts_.AddTo(*stream_, w.moe, n_, residual_.part(0, values));
  Trace(layer, Stage::kFfnOut, residual_, config_.dim);
}

// Rows of two buffers side by side.
void DeviceForward::TraceJoined(int32_t layer, Stage stage, const RowsOf& left,
                                const RowsOf& right) {
  const int64_t width = left.width + right.width;
  for (const Piece& piece : pieces_) {
    if (piece.in.trace == nullptr) continue;
    std::vector<float> joined(static_cast<size_t>(piece.count * width));
    int64_t at = 0;
    for (const RowsOf* part : {&left, &right}) {
      if (part->width == 0) continue;
      RowsOnHost(part->rows, piece.first, piece.count, part->width);
      for (int64_t i = 0; i < piece.count; ++i) {
        std::copy_n(trace_rows_.begin() + i * part->width, part->width,
                    joined.begin() + i * width + at);
      }
      at += part->width;
    }
    piece.in.trace->OnStage({layer, stage, piece.in.positions, joined, width});
  }
}

}  // namespace lockstep::device
