// Every kernel of every table: the cases of `lockstep bench kernels`, on arrays that are larger
// than the caches where they stream.
#include <memory>

#include "engine/kernels.h"
#include "reports/bench/entries.h"
#include "reports/kernels/cases.h"

namespace lockstep::internal {

std::vector<BenchEntry> KernelEntries(bool small) {
  constexpr uint64_t kSeed = 1;
  const int64_t bytes = small ? 1 << 12 : int64_t{32} << 20;
  const auto makers = KernelCases(bytes, Random(kSeed));
  const auto tiny = KernelCases(1, Random(kSeed));  // for their names
  std::vector<BenchEntry> entries;
  for (size_t i = 0; i < makers.size(); ++i) {
    const KernelCase named = tiny[i]();
    for (const KernelTable* table : AvailableKernels()) {
      // The same bits on every table: one of them is enough where digests are compared.
      if (!named.uses_table && table != AvailableKernels().back()) continue;
      const auto make = [maker = makers[i], table] {
        const auto kernel = std::make_shared<KernelCase>(maker());
        return MadeBench{
            .run = [kernel, table] { kernel->run(*table); },
            .digest = [kernel] { return kernel->digest(); },
            .work = kernel->work,
            .bound =
                kernel->work.bytes > kernel->work.fma_multiply_adds + kernel->work.dot_multiply_adds
                    ? "memory"
                    : "arithmetic",
        };
      };
      const std::string bits = "kernel/" + BenchWord(named.name);
      const std::string name = named.uses_table ? bits + "/" + std::string(table->name) : bits;
      entries.push_back({.name = name, .bits = bits, .make = make});
    }
  }
  return entries;
}

}  // namespace lockstep::internal
