// What one instruction set brings to the measurement of limits: loops that do nothing else.
#ifndef LOCKSTEP_REPORTS_LIMITS_ISA_LIMITS_H_
#define LOCKSTEP_REPORTS_LIMITS_ISA_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::internal {

// A loop from registers. What it returns depends on all that it computed.
struct PeakLoop {
  uint64_t (*run)(int64_t iterations) = nullptr;  // nullptr: the instruction set has no such loop
  double multiply_adds = 0;                       // of one iteration
};

struct IsaLimits {
  std::string_view name;
  // Reads [data, data + bytes) as `streams` (1, 2 or 4) equal parts side by side.
  // REQUIRES: data 64-byte aligned, bytes a multiple of 4096.
  uint64_t (*read)(const std::byte* data, size_t bytes, int streams) = nullptr;
  PeakLoop fma;
  PeakLoop dots[2];  // two sequences, the better one counts
};

extern const IsaLimits kScalarLimits;
#if defined(__x86_64__)
extern const IsaLimits kAvx2Limits;
extern const IsaLimits kAvx512Limits;
extern const IsaLimits kAvx512VnniLimits;
#elif defined(__aarch64__)
extern const IsaLimits kNeonLimits;
extern const IsaLimits kNeonDotprodLimits;
#endif

}  // namespace lockstep::internal

#endif  // LOCKSTEP_REPORTS_LIMITS_ISA_LIMITS_H_
