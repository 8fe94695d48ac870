#include "ci/lockstep/doctor_machine.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lockstep::cli {
namespace {

#if defined(__x86_64__)
// clang 14 does not know this feature by its name.
bool HasF16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::optional<int64_t> NumberIn(std::string_view text) {
  int64_t number = 0;
  const size_t at = std::min(text.find_first_not_of(" \t"), text.size());
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

// The bytes of a line "key:   number kB".
std::optional<int64_t> BytesOf(std::string_view meminfo, std::string_view key) {
  for (size_t at = 0; at < meminfo.size();) {
    const size_t end = std::min(meminfo.find('\n', at), meminfo.size());
    const std::string_view line = meminfo.substr(at, end - at);
    if (line.starts_with(key) && line.substr(key.size()).starts_with(':')) {
      const auto kib = NumberIn(line.substr(key.size() + 1));
      if (kib) return *kib * 1024;
    }
    at = end + 1;
  }
  return std::nullopt;
}

std::string FileText(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string BytesText(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string BytesText(const std::optional<int64_t>& bytes) {
  return bytes ? BytesText(static_cast<double>(*bytes)) : "unknown";
}

std::string LimitText(const std::optional<uint64_t>& bytes) {
  return bytes ? BytesText(static_cast<double>(*bytes)) : "unlimited";
}

// RLIMIT_* are an enumeration to g++.
template <typename Resource>
std::optional<uint64_t> LimitOf(Resource resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

bool TableFeatures::all() const { return std::ranges::all_of(features, &ProcessorFeature::there); }

std::vector<TableFeatures> FeaturesOfTables() {
#if defined(__x86_64__)
  return {{"avx2",
           {{"avx2", __builtin_cpu_supports("avx2") != 0},
            {"fma", __builtin_cpu_supports("fma") != 0},
            {"f16c", HasF16c()}}},
          {"avx512",
           {{"avx512f", __builtin_cpu_supports("avx512f") != 0},
            {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
            {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
            {"avx512vl", __builtin_cpu_supports("avx512vl") != 0}}},
          {"avx512vnni", {{"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0}}}};
#elif defined(__aarch64__)
  return {{"neon", {{"asimd", (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0}}},
          {"neon_dotprod", {{"asimddp", (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0}}}};
#else
  return {};
#endif
}

std::string FeaturesText(std::span<const TableFeatures> tables) {
  std::string text;
  for (const TableFeatures& table : tables) {
    if (!text.empty()) text += "; ";
    text += fmt::format("{} {}", table.table, table.all() ? "has" : "lacks");
    for (const ProcessorFeature& feature : table.features) {
      if (feature.there == table.all()) text += fmt::format(" {}", feature.name);
    }
  }
  return text.empty() ? "no table of this processor needs any" : text;
}

MachineMemory ParseMemory(std::string_view meminfo, std::string_view memory_max) {
  return {.total = BytesOf(meminfo, "MemTotal"),
          .available = BytesOf(meminfo, "MemAvailable"),
          .group_limit = NumberIn(memory_max)};  // "max": no limit
}

MachineMemory MemoryOfThisMachine() {
  return ParseMemory(FileText("/proc/meminfo"), FileText("/sys/fs/cgroup/memory.max"));
}

std::string MemoryText(const MachineMemory& memory) {
  std::string text =
      fmt::format("{}, {} of them available", BytesText(memory.total), BytesText(memory.available));
  if (memory.group_limit) {
    text += fmt::format("; this container may take {}", BytesText(memory.group_limit));
  }
  return text;
}

ProcessLimits LimitsOfThisProcess() {
  return {.stack = LimitOf(RLIMIT_STACK),
          .core = LimitOf(RLIMIT_CORE),
          .address_space = LimitOf(RLIMIT_AS),
          .files = LimitOf(RLIMIT_NOFILE)};
}

std::string LimitsText(const ProcessLimits& limits) {
  std::string text = fmt::format("stack {}, open files {}, core {}", LimitText(limits.stack),
                                 limits.files ? fmt::format("{}", *limits.files) : "unlimited",
                                 LimitText(limits.core));
  if (limits.core == 0u) text += " (a crash leaves no dump: ulimit -c unlimited)";
  text += fmt::format(", address space {}", LimitText(limits.address_space));
  if (limits.address_space) {
    text += " (AddressSanitizer reserves terabytes of it: ulimit -v unlimited)";
  }
  return text;
}

}  // namespace lockstep::cli
