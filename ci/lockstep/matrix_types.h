// lockstep verify --matrix --every-type: each family of models in each weight type, on rows of each
// type, with and without an adapter. A row of output is a family in a type.
#ifndef LOCKSTEP_CI_LOCKSTEP_MATRIX_TYPES_H_
#define LOCKSTEP_CI_LOCKSTEP_MATRIX_TYPES_H_

#include "ci/lockstep/matrix_command.h"
#include "oracle/matrix.h"

namespace lockstep::cli {

// `options` as the flags make them, without models. Throws Error for flags that do not go together.
ExitCode RunEveryType(const MatrixFlags& flags, MatrixOptions options);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MATRIX_TYPES_H_
