// Whether the golden files hold, on every kernel table: ci/compilers builds this program with every
// compiler, at the ends of optimisation.
//
//   lockstep_golden_probe FOLDER MODELS     the cases, the folder of model files
//
// Output, a line each: "<kernels> <files that hold> hold, <files that do not> do not", and above it
// what does not. Exits with 0 when all hold, else with 1. Nothing is written.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "golden/store.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: lockstep_golden_probe FOLDER MODELS\n");
    return 2;
  }
  try {
    bool holds = true;
    for (const lockstep::KernelTable* kernels : lockstep::AvailableKernels()) {
      const auto found = lockstep::CheckGoldens(
          {.tree = {.folder = argv[1]}, .record = {.kernels = kernels, .models = argv[2]}});
      int32_t differ = 0;
      for (const lockstep::GoldenStatus& status : found) {
        if (lockstep::HoldsWith(status.state)) continue;
        ++differ;
        fmt::print("{}/{} {}: {}\n", status.scenario, status.file,
                   lockstep::GoldenStateName(status.state), status.detail);
      }
      fmt::print("{} {} hold, {} do not\n", kernels->name, std::ssize(found) - differ, differ);
      holds = holds && differ == 0 && !found.empty();
    }
    return holds ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "lockstep_golden_probe: {}\n", e.what());
    return 2;
  }
}
