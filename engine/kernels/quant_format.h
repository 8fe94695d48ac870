// The form of every quantized weight type (quant_layout.h), by GgmlType.
#ifndef LOCKSTEP_ENGINE_KERNELS_QUANT_FORMAT_H_
#define LOCKSTEP_ENGINE_KERNELS_QUANT_FORMAT_H_

#include "engine/gguf.h"
#include "engine/kernels/quant_layout.h"

namespace lockstep::internal {
namespace {

// run.operator()<type>() for a quantized type.
template <typename Run>
inline void ForQuantType(GgmlType type, const Run& run) {
  switch (type) {
    case GgmlType::kQ4_0:
      return run.template operator()<GgmlType::kQ4_0>();
    case GgmlType::kQ4_1:
      return run.template operator()<GgmlType::kQ4_1>();
    case GgmlType::kQ5_0:
      return run.template operator()<GgmlType::kQ5_0>();
    case GgmlType::kQ5_1:
      return run.template operator()<GgmlType::kQ5_1>();
    case GgmlType::kQ8_0:
      return run.template operator()<GgmlType::kQ8_0>();
    case GgmlType::kQ2_K:
      return run.template operator()<GgmlType::kQ2_K>();
    case GgmlType::kQ3_K:
      return run.template operator()<GgmlType::kQ3_K>();
    case GgmlType::kQ4_K:
      return run.template operator()<GgmlType::kQ4_K>();
    case GgmlType::kQ5_K:
      return run.template operator()<GgmlType::kQ5_K>();
    case GgmlType::kQ6_K:
      return run.template operator()<GgmlType::kQ6_K>();
    case GgmlType::kIQ4_NL:
      return run.template operator()<GgmlType::kIQ4_NL>();
    case GgmlType::kIQ4_XS:
      return run.template operator()<GgmlType::kIQ4_XS>();
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      return;
  }
}

}  // namespace
}  // namespace lockstep::internal

#endif  // LOCKSTEP_ENGINE_KERNELS_QUANT_FORMAT_H_
