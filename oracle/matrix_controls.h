// The inverse controls of the determinism matrix: for every axis something that depends on it. Each
// is the mistake that the axis is there to find; a matrix that does not find it proves nothing.
#ifndef LOCKSTEP_ORACLE_MATRIX_CONTROLS_H_
#define LOCKSTEP_ORACLE_MATRIX_CONTROLS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "caches/kv_cache.h"
#include "engine/kernels.h"

namespace lockstep {

// What may vary without changing a bit.
enum class MatrixAxis : uint8_t {
  kWritePath,  // rows computed in place, refused by the cache, or copied by Update
  kCache,      // cache kind and block size
  kChunking,   // how the prefill is cut into steps
  kBatch,      // which other sequences share the step, and in which order
  kThreads,    // how many threads share the outputs
  kIsa,        // the kernels' instruction set
  kCompiler,   // compiler and optimisation level
  kProcess,    // the same in a second process
  kRollback,   // rejected tokens against none
  kSave,       // restored against live
  kFork,       // forked against separate
  kDevice,     // where the layers run, and in which order
};

struct MatrixControl {
  MatrixAxis axis = MatrixAxis::kWritePath;
  std::string_view name;  // as --control takes it
  std::string_view what;  // one sentence: what depends on the axis

  // At most one is set; with none the control is computed where the axis's digests are.
  const KernelTable* (*kernels)() = nullptr;      // runs the reference and the cells
  const KernelTable* (*odd_kernels)() = nullptr;  // runs the cells alone
  std::unique_ptr<KvCache> (*wrap)(std::unique_ptr<KvCache>) = nullptr;  // around every cache
};

// At least one for each axis, in the order of MatrixAxis.
std::span<const MatrixControl> MatrixControls();

// Throws Error naming the controls when there is none of that name.
const MatrixControl& ParseMatrixControl(std::string_view name);

// The kernel tables of the controls. Each is the scalar table but for one operation.
const KernelTable* TokenCountKernels();   // a reduction is cut by the number of tokens in the call
const KernelTable* TokenOrderKernels();   // a reduction is cut by the token's place in the call
const KernelTable* ThreadRangeKernels();  // a reduction is cut by the range of outputs in the call
const KernelTable* SegmentKernels();      // softmax runs over each segment of the view by itself
const KernelTable* UnfusedKernels();      // RoPE rounds a * b before it adds c
const KernelTable* ProcessKernels();      // an output's last bits are those of the process id

}  // namespace lockstep

#endif  // LOCKSTEP_ORACLE_MATRIX_CONTROLS_H_
