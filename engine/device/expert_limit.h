// What kernels take of a mixture of experts. For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_EXPERT_LIMIT_H_
#define LOCKSTEP_ENGINE_DEVICE_EXPERT_LIMIT_H_

#include <cstdint>

namespace lockstep::device {

// Experts of a layer, at most.
constexpr int32_t kExpertsMax = 1024;

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_EXPERT_LIMIT_H_
