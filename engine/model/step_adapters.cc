// What adapters add to a step: to each sequence's rows its own, in a pass behind the matrix.
//
// A step without adapters takes the fused passes of TeamKernels and never comes here.
#include "engine/model/step.h"

namespace lockstep {

bool StepRunner::Adapts(int32_t layer, AdapterTarget target) const {
  for (const Piece& piece : pieces_) {
    for (const AppliedAdapter& applied : piece.in.adapters) {
      if (applied.scale != 0.0f && applied.adapter->Find(layer, target) != nullptr) return true;
    }
  }
  return false;
}

void StepRunner::AddAdapters(int32_t layer, AdapterTarget target, const float* x, float* const* y) {
  for (const Piece& piece : pieces_) {
    for (const AppliedAdapter& applied : piece.in.adapters) {
      const LoraPair* pair = applied.adapter->Find(layer, target);
      if (pair == nullptr || applied.scale == 0.0f) continue;
      const int32_t cols = pair->a.cols();
      AddPair(*pair, applied.scale * pair->scale,
              {piece.count, cols, x + int64_t{piece.first} * cols, nullptr}, y + piece.first);
    }
  }
}

void StepRunner::AddPair(const LoraPair& pair, float scale, const Activations& x, float* const* y) {
  const int32_t rank = pair.a.rows();
  for (int64_t t = 0; t < x.tokens; ++t) {
    ws_.low_rank_rows[static_cast<size_t>(t)] = ws_.low_rank.data() + t * rank;
  }
  const Product down = {&pair.a, ws_.low_rank_rows.data()};
  kernels_.Multiply(x, {&down, 1});
  const Activations low = {x.tokens, rank, ws_.low_rank.data(), nullptr};
  const Product up = {&pair.b, ws_.delta.rows.data(), nullptr, y, scale};
  kernels_.Multiply(low, {&up, 1});
}

void StepRunner::AddToResidual(int32_t layer, AdapterTarget target, const PackedMatrix& w,
                               const std::vector<float>& norm, const Activations& x) {
  const bool adapts = Adapts(layer, target);
  const bool alone = norm.empty() && !adapts;  // then the thread that has an output adds it
  const Product product = {&w, ws_.projected.rows.data(), nullptr,
                           alone ? ws_.residual.rows.data() : nullptr,
                           adapts ? 1.0f : config_.residual_scale};
  kernels_.Multiply(x, {&product, 1});
  if (alone) return;
  if (adapts) AddAdapters(layer, target, x.values, ws_.projected.rows.data());
  const KernelTable& table = kernels_.table();
  kernels_.ForRows(n_, config_.dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = ws_.projected.row(i);
      if (adapts) Scale(config_.residual_scale, config_.dim, row);
      if (!norm.empty()) table.rms_norm(row, norm.data(), config_.dim, config_.rms_eps, row);
      table.add(row, config_.dim, ws_.residual.row(i));
    }
  });
}

void StepRunner::Gate(int32_t layer, const Activations& x, ActivationBlock* blocks) {
  const LayerWeights& w = model_.layers()[static_cast<size_t>(layer)];
  float* const* gate = ws_.gate.rows.data();
  float* const* up = ws_.up.rows.data();
  if (!Adapts(layer, AdapterTarget::kGate) && !Adapts(layer, AdapterTarget::kUp)) {
    kernels_.Gate(x, {&w.w_gate, &w.w_up, gate, up, blocks, config_.activation});
    return;
  }
  const Product products[] = {{&w.w_gate, gate}, {&w.w_up, up}};
  kernels_.Multiply(x, products);
  AddAdapters(layer, AdapterTarget::kGate, x.values, gate);
  AddAdapters(layer, AdapterTarget::kUp, x.values, up);
  const int32_t width = config_.ffn_dim;
  kernels_.ForRows(n_, width, [&](int64_t begin, int64_t end) {
    const KernelTable& table = kernels_.table();
    const auto activate =
        config_.activation == Activation::kGelu ? table.gelu_gate : table.silu_gate;
    for (int64_t i = begin; i < end; ++i) {
      activate(gate[i], up[i], width, gate[i]);
      if (blocks != nullptr) table.quantize_activations(gate[i], width, blocks + i * (width / 32));
    }
  });
}

}  // namespace lockstep
