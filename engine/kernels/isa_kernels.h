// The seam between the kernel table and the instruction sets: plain pointers and plain structs.
//
// A translation unit compiled for an instruction set must not instantiate inline functions with
// external linkage, not even accessors of our own classes (see bits.h). So it sees a matrix as a
// PackedView and a view as an array of segments; kernel_table.cc, compiled for the baseline,
// translates and checks.
#ifndef LOCKSTEP_ENGINE_KERNELS_ISA_KERNELS_H_
#define LOCKSTEP_ENGINE_KERNELS_ISA_KERNELS_H_

#include <cstdint>

#include "engine/kernels.h"
#include "engine/kernels/packed_layout.h"

namespace lockstep::internal {

struct PackedView {
  GgmlType type;
  int32_t rows;
  int32_t cols;
  int64_t group_bytes;
  const uint8_t* bytes;  // [groups, group_bytes], see packed_layout.h
};

namespace {

// The first byte of a group. The lines of a half-precision group are 64 bytes apart: its partner's
// values lie between.
inline const uint8_t* GroupOf(const PackedView& w, int32_t group) {
  const bool halves = w.type == GgmlType::kF16 || w.type == GgmlType::kBF16;
  return w.bytes + GroupAt(halves, group, w.group_bytes);
}

}  // namespace

// The functions of KernelTable, with the same contracts.
struct IsaKernels {
  const char* name;
  int32_t vector_bytes;  // what the translation unit was really compiled for
  bool hardware_fma;
  bool byte_dots;  // instructions for dot products of bytes
  void (*matmul)(const PackedView& w, const Activations& x, int32_t group_begin, int32_t group_end,
                 float* const* y);
  void (*quantize_activations)(const float* x, int32_t cols, ActivationBlock* blocks);
  void (*rms_norm)(const float* x, const float* weight, int32_t n, float eps, float* y);
  void (*rope_interleaved)(float* x, int32_t num_heads, int32_t head_dim, int32_t rope_dim,
                           const float* cos, const float* sin);
  void (*rope_halves)(float* x, int32_t num_heads, int32_t head_dim, int32_t rope_dim,
                      const float* cos, const float* sin);
  // Segments cover the rows of every query at least.
  void (*attention)(const AttentionShape& shape, const AttentionQueries& queries,
                    const KvSegment* segments, int32_t head_begin, int32_t head_end,
                    float* scratch);
  void (*silu_gate)(const float* gate, const float* up, int32_t n, float* out);
  void (*gelu_gate)(const float* gate, const float* up, int32_t n, float* out);
  void (*add)(const float* x, int32_t n, float* y);
  void (*scale)(float factor, int32_t n, float* y);
  void (*soft_cap)(float cap, int32_t n, float* y);
};

extern const IsaKernels kScalarKernels;
#if defined(__x86_64__)
extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvx512Kernels;
extern const IsaKernels kAvx512VnniKernels;
#elif defined(__aarch64__)
extern const IsaKernels kNeonKernels;
extern const IsaKernels kNeonDotprodKernels;
#endif

}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_ISA_KERNELS_H_
