// What kernels take of a model, at most. For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_LIMITS_H_
#define LOCKSTEP_ENGINE_DEVICE_LIMITS_H_

#include <cstdint>

namespace lockstep::device {

constexpr int32_t kHeadDimMax = 256;   // elements of a head
constexpr int32_t kExpertsMax = 1024;  // of a layer

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_LIMITS_H_
