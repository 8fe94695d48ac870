// The NEON kernels as a table, named by the translation unit that compiles them.
#ifndef LOCKSTEP_ENGINE_KERNELS_NEON_TABLE_H_
#define LOCKSTEP_ENGINE_KERNELS_NEON_TABLE_H_

// For lanes.h. "scalar" goes without, so that the tables check each other.
#define LOCKSTEP_NEON

#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/neon_matmul.h"
#include "engine/kernels/portable_table.h"

namespace lockstep::internal {
namespace {

constexpr IsaKernels NeonKernels(const char* name) {
  IsaKernels table = PortableKernels(name);
  table.matmul = MatmulNeon;
  return table;
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_NEON_TABLE_H_
