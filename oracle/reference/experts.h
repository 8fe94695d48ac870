// A mixture of experts in double precision, in the words of https://arxiv.org/abs/2401.04088
// (sections 2 and 2.1) and of the model cards of Qwen's (softmax over all experts, a shared expert
// behind a sigmoid).
#ifndef LOCKSTEP_ORACLE_REFERENCE_EXPERTS_H_
#define LOCKSTEP_ORACLE_REFERENCE_EXPERTS_H_

#include <cstdint>
#include <vector>

#include "oracle/reference/ops.h"
#include "oracle/reference/weights.h"

namespace lockstep::oracle {

struct MoeShape {
  int64_t experts = 0;
  int64_t used = 0;
  int64_t expert_dim = 0;
  int64_t shared_dim = 0;     // 0: no shared expert
  bool normalize = false;     // the weights of a row's experts sum to 1
  bool next_best = false;     // a mistake: the best expert is passed over
  bool leave_shared = false;  // a mistake: the shared expert is left out
  bool swap_gate = false;     // a mistake: gate and up exchanged
  Codes codes = Codes::kNearest;
};

// Router logits of each row: experts, then the shared expert's gate.
Rows ExpertRouter(const MoeShape& shape, const LayerTensors& w, const Rows& normed);

// The hidden rows of the experts that each row of `router` picks, in increasing order, then of the
// shared one.
Rows ExpertHidden(const MoeShape& shape, const LayerTensors& w, const Rows& router,
                  const Rows& normed);

// The weighted sum of their outputs. `router` and `hidden` are taken as exact.
Rows ExpertSum(const MoeShape& shape, const LayerTensors& w, const Rows& router,
               const Rows& hidden);

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_REFERENCE_EXPERTS_H_
