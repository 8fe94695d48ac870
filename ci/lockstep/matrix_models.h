// The models that a determinism matrix runs.
#ifndef LOCKSTEP_CI_LOCKSTEP_MATRIX_MODELS_H_
#define LOCKSTEP_CI_LOCKSTEP_MATRIX_MODELS_H_

#include <cstdint>
#include <vector>

#include "ci/lockstep/matrix_command.h"
#include "engine/synthetic.h"
#include "oracle/matrix.h"

namespace lockstep::cli {

// The given one with the given adapters; without one, a few small ones that have every stage and
// kind of block between them; with --every-model each small synthetic one, as it is and with an
// adapter. Throws Error for what cannot be read, does not fit, or contradicts itself.
std::vector<MatrixModel> MatrixModelsOf(const MatrixFlags& flags);

// A synthetic one with a prompt of so many tokens, made from the seed.
MatrixModel SyntheticModel(const SyntheticSpec& spec, int32_t prompt_tokens, uint64_t seed);

// The model as it is, and with an adapter made for it.
std::vector<MatrixModel> WithAndWithoutAdapter(MatrixModel model, uint64_t seed);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MATRIX_MODELS_H_
