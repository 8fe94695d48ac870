// GgmlType for kernels: engine/gguf.h is not for nvcc.
#ifndef LOCKSTEP_ENGINE_DEVICE_WEIGHT_TYPE_H_
#define LOCKSTEP_ENGINE_DEVICE_WEIGHT_TYPE_H_

#include <cstdint>

namespace lockstep::device {

enum class WeightType : int32_t { kF32, kF16, kBF16, kQ8_0, kQ4_0 };

template <WeightType kType>
constexpr bool kIsQuantized = kType == WeightType::kQ8_0 || kType == WeightType::kQ4_0;
template <WeightType kType>
constexpr bool kIsHalf = kType == WeightType::kF16 || kType == WeightType::kBF16;

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_WEIGHT_TYPE_H_
