// The portable kernels as a table, named by the translation unit that compiles them.
#ifndef LOCKSTEP_ENGINE_KERNELS_PORTABLE_TABLE_H_
#define LOCKSTEP_ENGINE_KERNELS_PORTABLE_TABLE_H_

#include "engine/kernels/isa_kernels.h"
#include "engine/kernels/portable_attention.h"
#include "engine/kernels/portable_gate.h"
#include "engine/kernels/portable_matmul.h"
#include "engine/kernels/portable_quantize.h"
#include "engine/kernels/portable_rms_norm.h"
#include "engine/kernels/portable_rope.h"

namespace lockstep::internal {
namespace {

constexpr IsaKernels PortableKernels(const char* name) {
  return {
      .name = name,
      .vector_bytes = kVectorBytes,
      .hardware_fma = kHardwareFma,
      .byte_dots = kByteDots,
      .matmul = Matmul,
      .quantize_activations = QuantizeActivations,
      .rms_norm = RmsNorm,
      .rope_interleaved = RopeInterleaved,
      .rope_halves = RopeHalves,
      .attention = Attention,
      .silu_gate = SiluGate,
      .gelu_gate = GeluGate,
      .add = Add,
      .scale = Scale,
      .soft_cap = SoftCap,
  };
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_PORTABLE_TABLE_H_
