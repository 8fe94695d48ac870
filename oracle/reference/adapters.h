// LoRA adapters in the reference: read from their files, and added to products.
//
//   Hu et al. 2021, https://arxiv.org/abs/2106.09685, equation 3
#ifndef LOCKSTEP_ORACLE_REFERENCE_ADAPTERS_H_
#define LOCKSTEP_ORACLE_REFERENCE_ADAPTERS_H_

#include "oracle/reference/ops.h"
#include "oracle/reference/weights.h"
#include "oracle/reference_transformer.h"

namespace lockstep::oracle {

// ReadWeights, with what the options' adapters change. Their files live as long.
Weights ReadAdaptedWeights(std::shared_ptr<const GgufFile> file, const ReferenceOptions& options);

// y += scale * b (a x) for each change of w, carrying y's bounds on.
void AddChanges(const Matrix& w, const Rows& x, Rows* y);

}  // namespace lockstep::oracle

#endif  // LOCKSTEP_ORACLE_REFERENCE_ADAPTERS_H_
