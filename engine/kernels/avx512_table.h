// The kernels for AVX-512, named by the translation unit that compiles them.
#ifndef LOCKSTEP_ENGINE_KERNELS_AVX512_TABLE_H_
#define LOCKSTEP_ENGINE_KERNELS_AVX512_TABLE_H_

#include "engine/kernels/avx512_matmul.h"
#include "engine/kernels/portable_table.h"

namespace lockstep::internal {
namespace {

constexpr IsaKernels Avx512Kernels(const char* name) {
  IsaKernels kernels = PortableKernels(name);
  kernels.matmul = Matmul512;
  return kernels;
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_AVX512_TABLE_H_
