// A fuzz target as a program of libFuzzer or AFL++: one entry, LLVMFuzzerTestOneInput. Built once
// for each target, whose name LOCKSTEP_FUZZ_TARGET is. A finding is printed as text and ends it.
//
// LOCKSTEP_FUZZ_PLANT in the environment plants the target's canary.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "properties/fuzz.h"

namespace lockstep {
namespace {

constexpr size_t kStates = size_t{1} << 15;

// What libFuzzer takes for coverage beside edges: how often each state of a cache was reached. It
// clears them before every input.
#ifdef __clang__
__attribute__((section("__libfuzzer_extra_counters"), used))
#endif
uint8_t g_states[kStates];

void CountState(uint64_t state) {
  uint8_t& count = g_states[state % kStates];
  if (count < UINT8_MAX) ++count;
}

const FuzzTarget& Target() {
  static const std::unique_ptr<FuzzTarget> target = [] {
    const FuzzTargetInfo& info = FuzzTargetNamed(LOCKSTEP_FUZZ_TARGET);
    const bool planted = std::getenv("LOCKSTEP_FUZZ_PLANT") != nullptr;
    return info.make({.plant = planted ? std::string(info.canary) : "", .feature = CountState});
  }();
  return *target;
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto finding = lockstep::Target().Run(bytes);
  if (finding) {
    fmt::print(stderr, "FOUND: {}: {}\n{}", finding->place, finding->what,
               lockstep::Target().Text(bytes));
    std::abort();
  }
  return 0;
}
