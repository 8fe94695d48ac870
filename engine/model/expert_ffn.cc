#include "engine/model/expert_ffn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "caches/check.h"
#include "engine/math.h"

namespace lockstep {
namespace {

constexpr int32_t kElements = 32;  // of an ActivationBlock

// Whether a row would rather have the first logit's expert: it comes first among equal ones.
bool Larger(float logit, float than) {
  return logit > than || (std::isnan(than) && !std::isnan(logit));
}

}  // namespace

void ChooseExperts(std::span<const float> logits, std::span<int32_t> chosen) {
  LS_CHECK(!chosen.empty() && chosen.size() <= logits.size(), "{} of {} experts", chosen.size(),
           logits.size());
  // Insertion into a short list, best first: later ones of equal logits stay behind earlier ones.
  size_t count = 0;
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    size_t at = count;
    while (at > 0 && Larger(logits[expert], logits[static_cast<size_t>(chosen[at - 1])])) --at;
    if (at == chosen.size()) continue;
    count = std::min(count + 1, chosen.size());
    std::copy_backward(chosen.begin() + static_cast<int64_t>(at),
                       chosen.begin() + static_cast<int64_t>(count) - 1,
                       chosen.begin() + static_cast<int64_t>(count));
    chosen[at] = static_cast<int32_t>(expert);
  }
  std::ranges::sort(chosen);
}

void ExpertWeightsOf(std::span<const float> logits, std::span<const int32_t> chosen, bool normalize,
                     std::span<float> weights, std::span<float> scratch) {
  float top = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) top = logit > top ? logit : top;
  std::array<float, 16> lanes = {};
  for (size_t i = 0; i < logits.size(); ++i) {
    scratch[i] = CanonicalExp(logits[i] - top);
    lanes[i % 16] += scratch[i];
  }
  for (const size_t width : {8u, 4u, 2u, 1u}) {
    for (size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    weights[i] = scratch[static_cast<size_t>(chosen[i])] / lanes[0];
  }
  if (!normalize) return;
  float sum = weights[0];
  for (size_t i = 1; i < chosen.size(); ++i) sum += weights[i];
  for (float& weight : weights.first(chosen.size())) weight /= sum;
}

void ExpertFfn::Reserve(int32_t rows) {
  if (rows <= rows_) return;
  rows_ = 0;
  const auto count = static_cast<size_t>(rows);
  const int32_t shared = config_.shared_dim > 0 ? 1 : 0;
  router_ = RowBuffer(rows, config_.num_experts + shared);
  shared_logit_.clear();
  for (size_t i = 0; i < count; ++i) shared_logit_.push_back(router_.rows[i] + config_.num_experts);
  chosen_.resize(count * static_cast<size_t>(config_.experts_used));
  weights_.resize(chosen_.size());
  scratch_.resize(static_cast<size_t>(config_.num_experts));
  picked_.reserve(count);
  gathered_ = RowBuffer(rows, config_.dim);
  gathered_blocks_ = AlignedBuffer<ActivationBlock>(rows * int64_t{config_.dim / kElements});
  gate_ = RowBuffer(rows, config_.expert_dim);
  up_ = RowBuffer(rows, config_.expert_dim);
  shared_gate_ = RowBuffer(rows, config_.shared_dim);
  shared_up_ = RowBuffer(rows, config_.shared_dim);
  const int64_t widest = std::max(config_.expert_dim, config_.shared_dim);
  blocks_ = AlignedBuffer<ActivationBlock>(rows * (widest / kElements));
  expert_out_ = RowBuffer(rows, config_.dim);
  hidden_ = RowBuffer(rows, config_.hidden_dim());
  rows_ = rows;
}

void ExpertFfn::Route(const MoeWeights& w, const Activations& normed) {
  LS_CHECK(normed.tokens <= rows_, "{} rows, room for {}", normed.tokens, rows_);
  const Product products[] = {{.w = &w.router, .y = router_.rows.data()},
                              {.w = &w.shared_router, .y = shared_logit_.data()}};
  kernels_.Multiply(normed, std::span(products).first(config_.shared_dim > 0 ? 2 : 1));
  const auto used = static_cast<size_t>(config_.experts_used);
  for (size_t t = 0; t < static_cast<size_t>(normed.tokens); ++t) {
    const std::span logits(router_.rows[t], static_cast<size_t>(config_.num_experts));
    const std::span chosen = std::span(chosen_).subspan(t * used, used);
    ChooseExperts(logits, chosen);
    ExpertWeightsOf(logits, chosen, config_.normalize_experts,
                    std::span(weights_).subspan(t * used, used), scratch_);
  }
}

void ExpertFfn::Run(const MoeWeights& w, const Activations& normed, bool keep, float* const* out) {
  for (int32_t expert = 0; expert < config_.num_experts; ++expert) {
    RunExpert(w.experts[static_cast<size_t>(expert)], expert, normed, keep, out);
  }
  if (config_.shared_dim > 0) RunShared(w, normed, keep, out);
}

// Experts come in increasing order, so each row's sum does.
void ExpertFfn::RunExpert(const ExpertWeights& w, int32_t expert, const Activations& normed,
                          bool keep, float* const* out) {
  const Activations input = Gather(expert, normed);
  if (input.tokens == 0) return;
  Project(w, input, &gate_, &up_);
  const KernelTable& table = kernels_.table();
  kernels_.ForRows(input.tokens, config_.dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Picked& picked = picked_[static_cast<size_t>(i)];
      const int64_t at = int64_t{picked.row} * config_.experts_used + picked.slot;
      float* row = expert_out_.row(i);
      table.scale(weights_[static_cast<size_t>(at)], config_.dim, row);
      if (picked.slot == 0) {
        std::copy_n(row, config_.dim, out[picked.row]);
      } else {
        table.add(row, config_.dim, out[picked.row]);
      }
      if (!keep) continue;
      std::copy_n(gate_.row(i), config_.expert_dim,
                  hidden_.row(picked.row) + int64_t{picked.slot} * config_.expert_dim);
    }
  });
}

void ExpertFfn::RunShared(const MoeWeights& w, const Activations& normed, bool keep,
                          float* const* out) {
  Project(w.shared, normed, &shared_gate_, &shared_up_);
  const KernelTable& table = kernels_.table();
  kernels_.ForRows(normed.tokens, config_.dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = expert_out_.row(i);
      const float logit = *shared_logit_[static_cast<size_t>(i)];
      table.scale(1.0f / (1.0f + CanonicalExp(-logit)), config_.dim, row);
      table.add(row, config_.dim, out[i]);
      if (!keep) continue;
      std::copy_n(shared_gate_.row(i), config_.shared_dim,
                  hidden_.row(i) + int64_t{config_.experts_used} * config_.expert_dim);
    }
  });
}

Activations ExpertFfn::Gather(int32_t expert, const Activations& normed) {
  picked_.clear();
  const int32_t used = config_.experts_used;
  for (int32_t row = 0; row < normed.tokens; ++row) {
    const auto first = chosen_.begin() + int64_t{row} * used;
    const auto found = std::find(first, first + used, expert);
    if (found == first + used) continue;
    const int64_t to = std::ssize(picked_);
    std::copy_n(normed.values + int64_t{row} * normed.cols, normed.cols, gathered_.row(to));
    if (normed.blocks != nullptr) {
      const int64_t blocks = normed.cols / kElements;
      std::copy_n(normed.blocks + row * blocks, blocks, gathered_blocks_.data() + to * blocks);
    }
    picked_.push_back({row, static_cast<int32_t>(found - first)});
  }
  return {.tokens = static_cast<int32_t>(picked_.size()),
          .cols = normed.cols,
          .values = gathered_.row(0),
          .blocks = normed.blocks != nullptr ? gathered_blocks_.data() : nullptr};
}

void ExpertFfn::Project(const ExpertWeights& w, const Activations& input, RowBuffer* gate,
                        RowBuffer* up) {
  ActivationBlock* blocks = w.down.quantized() ? blocks_.data() : nullptr;
  kernels_.Gate(input, {.gate = &w.gate,
                        .up = &w.up,
                        .gate_rows = gate->rows.data(),
                        .up_rows = up->rows.data(),
                        .blocks = blocks,
                        .activation = config_.activation});
  const Activations hidden = {
      .tokens = input.tokens, .cols = w.down.cols(), .values = gate->row(0), .blocks = blocks};
  const Product down = {.w = &w.down, .y = expert_out_.rows.data()};
  kernels_.Multiply(hidden, {&down, 1});
}

}  // namespace lockstep
