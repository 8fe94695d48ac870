#include "reports/limits/isa_list.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lockstep::internal {

std::vector<const IsaLimits*> AvailableIsaLimits() {
  std::vector<const IsaLimits*> isas = {&kScalarLimits};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    isas.push_back(&kAvx2Limits);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      isas.push_back(&kAvx512Limits);
      if (__builtin_cpu_supports("avx512vnni")) isas.push_back(&kAvx512VnniLimits);
    }
  }
#elif defined(__aarch64__)
  isas.push_back(&kNeonLimits);
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) isas.push_back(&kNeonDotprodLimits);
#endif
  return isas;
}

const IsaLimits* FindIsaLimits(std::string_view name) {
  for (const IsaLimits* isa : AvailableIsaLimits()) {
    if (isa->name == name) return isa;
  }
  return nullptr;
}

}  // namespace lockstep::internal
