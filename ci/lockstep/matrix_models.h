// The models that a determinism matrix runs.
#ifndef LOCKSTEP_CI_LOCKSTEP_MATRIX_MODELS_H_
#define LOCKSTEP_CI_LOCKSTEP_MATRIX_MODELS_H_

#include <vector>

#include "ci/lockstep/matrix_command.h"
#include "oracle/matrix.h"

namespace lockstep::cli {

// The given one with the given adapters; without one, a few small ones that have every stage and
// kind of block between them; with --every-model each small synthetic one, as it is and with an
// adapter. Throws Error for what cannot be read, does not fit, or contradicts itself.
std::vector<MatrixModel> MatrixModelsOf(const MatrixFlags& flags);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MATRIX_MODELS_H_
