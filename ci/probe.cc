// The digests that have to be the same from every compiler, optimisation level and instruction set:
// ci/compilers and ci/aarch64 build this program several times and compare what it prints.
//
// Output, a line each: "<kernels> <preset> <cache> <logits digest> <cache digest>".
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "oracle/digest_line.h"

int main() {
  try {
    for (const lockstep::DigestLine& line :
         lockstep::LinesOfPresets(lockstep::AvailableKernels())) {
      fmt::print("{}\n", line.Text());
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "lockstep_probe: {}\n", e.what());
    return 2;
  }
  return 0;
}
