// The determinism matrix as a campaign whose inputs are axes (ci/shard/shard.h).
#ifndef LOCKSTEP_CI_LOCKSTEP_MATRIX_SHARD_H_
#define LOCKSTEP_CI_LOCKSTEP_MATRIX_SHARD_H_

#include <cstdint>

#include "ci/lockstep/matrix_command.h"
#include "ci/shard/shard.h"
#include "oracle/matrix.h"

namespace lockstep::cli {

// Leaves the shard's axes, perhaps none, and returns how many there were.
int64_t KeepAxesOfShard(const Shard& shard, MatrixOptions* options);

// Writes flags.shard_file, if there is one. An axis that proved nothing counts as one that did not
// run.
void WriteMatrixShard(const MatrixFlags& flags, int64_t axes_of_all, const MatrixResult& result);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MATRIX_SHARD_H_
