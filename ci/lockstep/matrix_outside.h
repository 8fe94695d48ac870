// What the determinism matrix compares itself with and cannot compute here: other builds, other
// machines, other processes.
#ifndef LOCKSTEP_CI_LOCKSTEP_MATRIX_OUTSIDE_H_
#define LOCKSTEP_CI_LOCKSTEP_MATRIX_OUTSIDE_H_

#include <span>
#include <string>
#include <vector>

#include "oracle/matrix.h"

namespace lockstep::cli {

// The rows of ci/compilers: a JSON object a line, {"compiler": "g++ 12.2.0", "flags": "-O2",
// "control": false, "lines": ["<digest line>", ...]}. `path` empty: where ci/compilers and ctest
// leave them beside the binary; without a file one cell says what to run.
std::vector<OutsideDigests> CompilerRows(const std::string& path);

// The digest lines of a probe on aarch64, a value for each kernel table.
std::vector<OutsideDigests> Aarch64Rows(const std::string& path);

// Digest lines of these models on these tables and caches, in this process. Models with adapters
// are left out: a digest line has no place to name one.
std::vector<DigestLine> LinesHere(const std::vector<MatrixModel>& models,
                                  std::span<const KernelTable* const> kernels,
                                  std::span<const CacheSpec> caches);

// Starts this binary again with `args` and returns what it prints. With `other_memory` fresh memory
// holds other bytes, and the stack begins elsewhere. Throws Error when it fails.
std::string OutputOfSecondProcess(const std::vector<std::string>& args, bool other_memory);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_MATRIX_OUTSIDE_H_
