// The feed-forward network of a mixture of experts (engine/ARITHMETIC.md 4.8): a router picks a few
// experts for each row, whose outputs are added with weights. Jiang et al. 2024,
// https://arxiv.org/abs/2401.04088; Shazeer et al. 2017, https://arxiv.org/abs/1701.06538.
//
// A row's outputs are its own: rows that picked one expert are gathered so that its weights are
// read once, and no sum goes over rows.
#ifndef LOCKSTEP_ENGINE_MODEL_EXPERT_FFN_H_
#define LOCKSTEP_ENGINE_MODEL_EXPERT_FFN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "caches/aligned_buffer.h"
#include "engine/model.h"
#include "engine/model/team_kernels.h"
#include "engine/model/workspace.h"

namespace lockstep {

// The experts that a row picked: the largest logits, of equal ones the first, NaN after every
// number; in increasing order. REQUIRES: 0 < chosen.size() <= logits.size().
void ChooseExperts(std::span<const float> logits, std::span<int32_t> chosen);

// The softmax of all logits at the chosen ones, which then sum to 1 where they are normalized.
// scratch: as many floats as logits.
void ExpertWeightsOf(std::span<const float> logits, std::span<const int32_t> chosen, bool normalize,
                     std::span<float> weights, std::span<float> scratch);

class ExpertFfn {
 public:
  // Of a model with experts. Keeps both arguments.
  ExpertFfn(const ModelConfig& config, TeamKernels* kernels)
      : config_(config), kernels_(*kernels) {}

  // Room for steps of `rows` rows; nothing is allocated by Run within it.
  void Reserve(int32_t rows);

  // Router's logits of each row: one for each expert, then that of the shared expert's gate.
  // REQUIRES: room for normed.tokens rows.
  void Route(const MoeWeights& w, const Activations& normed);

  // out[t] = the weighted sum of experts for row t, [dim]. After Route of the same rows. Where
  // `keep` is set the experts' hidden rows are kept for hidden().
  void Run(const MoeWeights& w, const Activations& normed, bool keep, float* const* out);

  RowBuffer& router() { return router_; }
  // [rows, config.hidden_dim()]: the hidden rows of the chosen experts in increasing order, then
  // the shared expert's.
  RowBuffer& hidden() { return hidden_; }

 private:
  void RunExpert(const ExpertWeights& w, int32_t expert, const Activations& normed, bool keep,
                 float* const* out);
  void RunShared(const MoeWeights& w, const Activations& normed, bool keep, float* const* out);
  // The rows that chose `expert`, into picked_ and, one after another, into gathered_.
  Activations Gather(int32_t expert, const Activations& normed);
  // Gate, up and down projection of `input`, into expert_out_.
  void Project(const ExpertWeights& w, const Activations& input, RowBuffer* gate, RowBuffer* up);

  const ModelConfig& config_;
  TeamKernels& kernels_;
  int32_t rows_ = 0;

  RowBuffer router_;                  // [rows, experts and the shared one]
  std::vector<float*> shared_logit_;  // [rows], the last element of each
  std::vector<int32_t> chosen_;       // [rows, experts_used]
  std::vector<float> weights_;        // the same
  std::vector<float> scratch_;        // [experts]

  // Rows of one expert, and where each belongs: its row, and which of the row's experts this is.
  struct Picked {
    int32_t row = 0;
    int32_t slot = 0;
  };
  std::vector<Picked> picked_;
  RowBuffer gathered_;  // [rows, dim]
  AlignedBuffer<ActivationBlock> gathered_blocks_;
  RowBuffer gate_, up_;                // [rows, expert_dim]
  RowBuffer shared_gate_, shared_up_;  // [rows, shared_dim]
  AlignedBuffer<ActivationBlock> blocks_;
  RowBuffer expert_out_;  // [rows, dim]
  RowBuffer hidden_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_ENGINE_MODEL_EXPERT_FFN_H_
