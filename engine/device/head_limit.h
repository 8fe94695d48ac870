// What kernels take of a head. For nvcc too.
#ifndef LOCKSTEP_ENGINE_DEVICE_HEAD_LIMIT_H_
#define LOCKSTEP_ENGINE_DEVICE_HEAD_LIMIT_H_

#include <cstdint>

namespace lockstep::device {

// Elements of a head, at most.
constexpr int32_t kHeadDimMax = 256;

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_HEAD_LIMIT_H_
