// GgmlType for kernels: engine/gguf.h is not for nvcc.
#ifndef LOCKSTEP_ENGINE_DEVICE_WEIGHT_TYPE_H_
#define LOCKSTEP_ENGINE_DEVICE_WEIGHT_TYPE_H_

#include <cstdint>

namespace lockstep::device {

// Each(name) for all of them. The names are GgmlType's.
#define LOCKSTEP_FLOAT_WEIGHTS(Each) Each(kF32) Each(kF16) Each(kBF16)
#define LOCKSTEP_QUANT_WEIGHTS(Each)                                                              \
  Each(kQ8_0) Each(kQ4_0) Each(kQ4_1) Each(kQ5_0) Each(kQ5_1) Each(kQ2_K) Each(kQ3_K) Each(kQ4_K) \
      Each(kQ5_K) Each(kQ6_K) Each(kIQ4_NL) Each(kIQ4_XS)

#define LOCKSTEP_LISTED(type) type,
enum class WeightType : int32_t {
  LOCKSTEP_FLOAT_WEIGHTS(LOCKSTEP_LISTED) LOCKSTEP_QUANT_WEIGHTS(LOCKSTEP_LISTED)
};
#undef LOCKSTEP_LISTED

template <WeightType kType>
constexpr bool kIsHalf = kType == WeightType::kF16 || kType == WeightType::kBF16;
template <WeightType kType>
constexpr bool kIsQuantized = kType != WeightType::kF32 && !kIsHalf<kType>;

// "mat_vec_q4_k" of "mat_vec_" and kQ4_K: a kernel's name.
struct KernelName {
  char text[24] = {};
};
constexpr KernelName KernelNameOf(const char* prefix, WeightType type) {
  const char* name = "";
#define LOCKSTEP_NAMED(other) \
  if (type == WeightType::other) name = #other;
  LOCKSTEP_FLOAT_WEIGHTS(LOCKSTEP_NAMED)
  LOCKSTEP_QUANT_WEIGHTS(LOCKSTEP_NAMED)
#undef LOCKSTEP_NAMED
  KernelName out;
  int32_t length = 0;
  for (; *prefix != '\0'; ++prefix) out.text[length++] = *prefix;
  for (++name; *name != '\0'; ++name) {
    const bool upper = *name >= 'A' && *name <= 'Z';
    out.text[length++] = static_cast<char>(upper ? *name - 'A' + 'a' : *name);
  }
  return out;
}

}  // namespace lockstep::device

#endif  // LOCKSTEP_ENGINE_DEVICE_WEIGHT_TYPE_H_
