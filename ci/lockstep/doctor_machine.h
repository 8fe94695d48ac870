// What `lockstep doctor` says of the machine: which processor features its kernel tables need, what
// memory there is, what a process may take.
#ifndef LOCKSTEP_CI_LOCKSTEP_DOCTOR_MACHINE_H_
#define LOCKSTEP_CI_LOCKSTEP_DOCTOR_MACHINE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct ProcessorFeature {
  std::string_view name;  // as the compiler and /proc/cpuinfo of most have it
  bool there = false;
};

// What a kernel table needs of the processor beyond those before it.
struct TableFeatures {
  std::string_view table;  // KernelTable::name
  std::vector<ProcessorFeature> features = {};

  // Whether all of its own are there.
  bool all() const;
};

// The tables of this architecture but "scalar", which needs nothing, in the order of
// AvailableKernels().
std::vector<TableFeatures> FeaturesOfTables();

// "avx2 has avx2 fma f16c; avx512 lacks avx512bw".
std::string FeaturesText(std::span<const TableFeatures> tables);

struct MachineMemory {
  std::optional<int64_t> total = {}, available = {};  // bytes
  std::optional<int64_t> group_limit = {};            // of this container, where it has one
};

// From /proc/meminfo and the memory.max of a cgroup, as text.
MachineMemory ParseMemory(std::string_view meminfo, std::string_view memory_max);
MachineMemory MemoryOfThisMachine();

// "31.3 GiB, 20.1 GiB of them available; this container may take 8.0 GiB".
std::string MemoryText(const MachineMemory& memory);

// ulimit: what a process may take; none: without limit.
struct ProcessLimits {
  std::optional<uint64_t> stack = {}, core = {}, address_space = {};  // bytes
  std::optional<uint64_t> files = {};
};
ProcessLimits LimitsOfThisProcess();

// "stack 8.0 MiB, open files 1024, core 0 B (a crash leaves none: ulimit -c unlimited), ...".
std::string LimitsText(const ProcessLimits& limits);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CI_LOCKSTEP_DOCTOR_MACHINE_H_
