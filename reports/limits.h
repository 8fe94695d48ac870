// What this machine can do at most, measured beside what is compared with it: fractions of a limit
// hold on other machines and other days, absolute times do not.
//
// Units: seconds, bytes a second, multiply-adds a second (one multiply-add is two operations of
// "FLOPS" or "OPS"). Every figure is the best of a few short attempts.
#ifndef LOCKSTEP_REPORTS_LIMITS_H_
#define LOCKSTEP_REPORTS_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

struct LimitOptions {
  int64_t read_bytes = int64_t{256} << 20;  // far more than the caches hold
  double seconds = 0.003;                   // of one attempt at an arithmetic peak, about
  int attempts = 4;                         // the best one counts
};

class MachineLimits {
 public:
  // Takes read_bytes of memory, in huge pages where the system gives them.
  explicit MachineLimits(const LimitOptions& options = {});
  ~MachineLimits();
  MachineLimits(const MachineLimits&) = delete;
  MachineLimits& operator=(const MachineLimits&) = delete;

  // The instruction sets whose peaks can be measured here, best last: "scalar" (the baseline that
  // the library is built for; a multiply and an add where there is no fused one), "avx2", "avx512",
  // "avx512vnni"; "neon", "neon_dotprod".
  std::vector<std::string_view> instruction_sets() const;

  // Bytes a second that `threads` threads read together from memory, each its own part with the
  // widest vectors there are; the best over numbers of streams a thread.
  double ReadBandwidth(int32_t threads);

  // The same of one thread over `memory`, whose pages the system may have laid otherwise than those
  // of the memory above: on a virtual machine two arrays can be read three times as fast as each
  // other. REQUIRES: at least kOwnMemoryMin bytes.
  double ReadBandwidthOf(std::span<const std::byte> memory);
  static constexpr size_t kOwnMemoryMin = size_t{8} << 20;

  // F32 multiply-adds a second of `threads` threads, from registers. nullopt: not available here.
  std::optional<double> FmaPeak(std::string_view isa, int32_t threads);

  // Exact products of 8-bit integers, added up in 32 bits; per second. The best sequence of the
  // instruction set: vpdpbusd, or vpmaddubsw and vpmaddwd, or vpmaddwd alone.
  std::optional<double> DotPeak(std::string_view isa, int32_t threads);

  // Seconds from a write on one thread until another, running, sees it. nullopt on one processor.
  std::optional<double> BarrierLatency();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The instruction set, of those given, whose peaks bound the kernel table of that name: the one
// with the longest name that the table's begins with, else the last. REQUIRES: not empty.
std::string_view InstructionSetOf(std::string_view kernels,
                                  const std::vector<std::string_view>& instruction_sets);

// What else ran on this machine meanwhile, as shares of the time of all its processors, 0 to 1.
struct ForeignLoad {
  double others = 0;  // other processes and the kernel's own work
  double steal = 0;   // taken by the hypervisor
};

// From construction until asked. The system counts in steps of 10 ms: intervals well above that.
class LoadMeter {
 public:
  LoadMeter();
  std::optional<ForeignLoad> Load() const;  // nullopt: the system does not say

 private:
  struct Times {
    double busy = 0, steal = 0, total = 0, own = 0;  // seconds over all processors
  };
  static std::optional<Times> Now();

  std::optional<Times> start_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_LIMITS_H_
