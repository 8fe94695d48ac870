#include "engine/model/step.h"

#include <algorithm>

namespace lockstep {

void StepRunner::Run(std::span<const StepPiece> pieces) {
  Embedded(pieces);
  RunFrom(0);
}

std::span<float> StepRunner::Embedded(std::span<const StepPiece> pieces) {
  Begin(pieces);
  Embed();
  return ws_.residual.Rows(0, n_);
}

void StepRunner::RunFrom(int32_t first_layer) {
  for (int32_t layer = first_layer; layer < config_.num_layers; ++layer) {
    AttentionBlock(layer);
    experts_ ? ExpertBlock(layer) : FfnBlock(layer);
  }
  KeepWantedRows();
}

void StepRunner::Begin(std::span<const StepPiece> pieces) {
  pieces_.clear();
  n_ = 0;
  for (const StepPiece& in : pieces) {
    const auto count = static_cast<int32_t>(in.tokens.size());
    pieces_.push_back({.in = in, .first = n_, .count = count, .keys = {}, .values = {}});
    for (int32_t position : in.positions) {
      ws_.positions[static_cast<size_t>(n_)] = position;
      ws_.visible[static_cast<size_t>(n_)] = position + 1;
      ++n_;
    }
  }
}

void StepRunner::Embed() {
  for (const Piece& piece : pieces_) {
    kernels_.ForRows(piece.count, config_.dim, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        model_.Embed(piece.in.tokens[static_cast<size_t>(i)],
                     ws_.residual.Rows(piece.first + i, 1));
        Scale(config_.embedding_scale, config_.dim, ws_.residual.row(piece.first + i));
      }
    });
  }
  Trace(-1, Stage::kEmbedding, &ws_.residual);
}

void StepRunner::AttentionBlock(int32_t layer) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  Project(layer);
  StoreRows(layer);
  const bool quantize = w.wo.quantized();
  Attend(layer, quantize);
  Trace(layer, Stage::kAttention, &ws_.attention);

  const Activations input = {n_, config_.q_dim(), ws_.attention.row(0),
                             quantize ? ws_.input.data() : nullptr};
  AddToResidual(layer, AdapterTarget::kAttnOut, w.wo, w.post_attn_norm, input);
  Trace(layer, Stage::kAttnOut, &ws_.residual);
}

void StepRunner::FfnBlock(int32_t layer) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  const Activations normed = NormRows(w.ffn_norm, w.w_gate.quantized() || w.w_up.quantized());
  Trace(layer, Stage::kFfnNorm, &ws_.normed);

  ActivationBlock* blocks = w.w_down.quantized() ? ws_.hidden.data() : nullptr;
  Gate(layer, normed, blocks);
  Trace(layer, Stage::kFfnHidden, &ws_.gate);

  const Activations hidden = {n_, config_.ffn_dim, ws_.gate.row(0), blocks};
  AddToResidual(layer, AdapterTarget::kDown, w.w_down, w.post_ffn_norm, hidden);
  Trace(layer, Stage::kFfnOut, &ws_.residual);
}

void StepRunner::ExpertBlock(int32_t layer) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  const ExpertWeights& expert = w.moe.experts.front();
  const bool quantize = w.moe.router.quantized() || w.moe.shared_router.quantized() ||
                        expert.gate.quantized() || expert.up.quantized() ||
                        w.moe.shared.gate.quantized() || w.moe.shared.up.quantized();
  const Activations normed = NormRows(w.ffn_norm, quantize);
  Trace(layer, Stage::kFfnNorm, &ws_.normed);
  experts_->Route(w.moe, normed);
  Trace(layer, Stage::kFfnRouter, &experts_->router());
  const bool traced =
      std::ranges::any_of(pieces_, [](const Piece& piece) { return piece.in.trace != nullptr; });
  experts_->Run(w.moe, normed, traced, ws_.projected.rows.data());
  Trace(layer, Stage::kFfnHidden, &experts_->hidden());
  kernels_.ForRows(n_, config_.dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      kernels_.table().add(ws_.projected.row(i), config_.dim, ws_.residual.row(i));
    }
  });
  Trace(layer, Stage::kFfnOut, &ws_.residual);
}

Activations StepRunner::NormRows(const std::vector<float>& weight, bool quantize) {
  const int32_t dim = config_.dim;
  const KernelTable& table = kernels_.table();
  kernels_.ForRows(n_, dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      table.rms_norm(ws_.residual.row(i), weight.data(), dim, config_.rms_eps, ws_.normed.row(i));
      if (!quantize) continue;
      table.quantize_activations(ws_.normed.row(i), dim, ws_.input.data() + i * (dim / 32));
    }
  });
  return {n_, dim, ws_.normed.row(0), quantize ? ws_.input.data() : nullptr};
}

// Q, K and V: projection, bias, adapters, QK-norm, RoPE, in place: in the cache where it grants a
// slot.
void StepRunner::Project(int32_t layer) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  const Activations normed =
      NormRows(w.attn_norm, w.wq.quantized() || w.wk.quantized() || w.wv.quantized());
  Trace(layer, Stage::kAttnNorm, &ws_.normed);
  ReserveRows(layer);
  const auto bias = [](const std::vector<float>& b) { return b.empty() ? nullptr : b.data(); };
  const Product products[] = {
      {&w.wq, ws_.query.rows.data(), bias(w.bq), nullptr},
      {&w.wk, ws_.key_rows.data(), bias(w.bk), nullptr},
      {&w.wv, ws_.value_rows.data(), bias(w.bv), nullptr},
  };
  kernels_.Multiply(normed, products);
  AddAdapters(layer, AdapterTarget::kQuery, normed.values, ws_.query.rows.data());
  AddAdapters(layer, AdapterTarget::kKey, normed.values, ws_.key_rows.data());
  AddAdapters(layer, AdapterTarget::kValue, normed.values, ws_.value_rows.data());
  ApplyHook(layer);
  Trace(layer, Stage::kQuery, &ws_.query);
  for (const Piece& piece : pieces_) {
    TraceRows(piece, layer, Stage::kKey, piece.keys, config_.kv_dim());
    TraceRows(piece, layer, Stage::kValue, piece.values, config_.kv_dim());
  }
  FinishRows(layer);
  Trace(layer, Stage::kQueryRope, &ws_.query);
  for (const Piece& piece : pieces_) {
    TraceRows(piece, layer, Stage::kKeyRope, piece.keys, config_.kv_dim());
  }
}

void StepRunner::ApplyHook(int32_t layer) {
  if (hook_ == nullptr) return;
  for (const Piece& piece : pieces_) {
    const std::span<const float> input = ws_.normed.Rows(piece.first, piece.count);
    hook_->Apply(layer, Projection::kQuery, input, ws_.query.Rows(piece.first, piece.count),
                 piece.count);
    hook_->Apply(layer, Projection::kKey, input, piece.keys, piece.count);
    hook_->Apply(layer, Projection::kValue, input, piece.values, piece.count);
  }
}

void StepRunner::FinishRows(int32_t layer) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  kernels_.ForRows(n_, config_.q_dim() + config_.kv_dim(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t position = ws_.positions[static_cast<size_t>(i)];
      FinishHeads(layer, ws_.query.row(i), config_.num_heads, w.q_norm, position);
      FinishHeads(layer, ws_.key_rows[static_cast<size_t>(i)], config_.num_kv_heads, w.k_norm,
                  position);
    }
  });
}

void StepRunner::FinishHeads(int32_t layer, float* row, int32_t heads,
                             const std::vector<float>& norm, int32_t position) {
  const KernelTable& table = kernels_.table();
  for (int64_t head = 0; !norm.empty() && head < heads; ++head) {
    float* at = row + head * config_.head_dim;
    table.rms_norm(at, norm.data(), config_.head_dim, config_.rms_eps, at);
  }
  if (!config_.rotates(layer)) return;
  const auto rope =
      config_.rope_pairing == RopePairing::kHalves ? table.rope_halves : table.rope_interleaved;
  const RopeTable& angles = ws_.rope(layer);
  rope(row, heads, config_.head_dim, config_.rope.dim, angles.cos(position).data(),
       angles.sin(position).data());
}

void StepRunner::Scale(float factor, int32_t n, float* row) const {
  if (factor != 1.0f) kernels_.table().scale(factor, n, row);
}

// For Logits.
void StepRunner::KeepWantedRows() {
  for (const Piece& piece : pieces_) {
    for (int32_t i = 0; i < piece.in.wanted; ++i) {
      const int32_t output = piece.in.output + i;
      const int32_t row = piece.count - piece.in.wanted + i;
      if (ends_.size() <= static_cast<size_t>(output))
        ends_.resize(static_cast<size_t>(output) + 1);
      ends_[static_cast<size_t>(output)] = {piece.in.trace,
                                            piece.in.positions[static_cast<size_t>(row)]};
      kernels_.table().rms_norm(ws_.residual.row(piece.first + row), model_.output_norm().data(),
                                config_.dim, config_.rms_eps, ws_.final.row(output));
    }
  }
}

void StepRunner::Logits(int32_t outputs) {
  const PackedMatrix& output = model_.output();
  const auto trace = [&](Stage stage, RowBuffer& rows) {
    for (int32_t i = 0; i < outputs; ++i) {
      const End& end = ends_[static_cast<size_t>(i)];
      if (end.trace == nullptr) continue;
      end.trace->OnStage(
          {config_.num_layers, stage, {&end.position, 1}, rows.Rows(i, 1), rows.width});
    }
  };
  trace(Stage::kFinalNorm, ws_.final);
  const bool quantize = output.quantized();
  for (int32_t i = 0; quantize && i < outputs; ++i) {
    kernels_.table().quantize_activations(ws_.final.row(i), config_.dim,
                                          ws_.final_input.data() + i * (config_.dim / 32));
  }
  const Activations input = {outputs, config_.dim, ws_.final.row(0),
                             quantize ? ws_.final_input.data() : nullptr};
  const Product product = {&output, ws_.logits.rows.data(), nullptr, nullptr};
  kernels_.Multiply(input, {&product, 1});
  for (int32_t i = 0; i < outputs; ++i) {
    Scale(config_.logit_scale, config_.vocab_size, ws_.logits.row(i));
    if (config_.logit_cap == 0) continue;
    kernels_.table().soft_cap(config_.logit_cap, config_.vocab_size, ws_.logits.row(i));
  }
  trace(Stage::kLogits, ws_.logits);
}

void StepRunner::Trace(int32_t layer, Stage stage, RowBuffer* buffer) const {
  for (const Piece& piece : pieces_) {
    TraceRows(piece, layer, stage, buffer->Rows(piece.first, piece.count), buffer->width);
  }
}

}  // namespace lockstep
