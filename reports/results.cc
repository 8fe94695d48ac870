#include "reports/results.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>

#include "caches/digest.h"
#include "engine/thread_team.h"

namespace lockstep {
namespace {

// The first value of a line "name : value" of a file of /proc; empty when there is none.
std::string ValueOf(const char* path, std::string_view name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace

std::string_view DirectionName(Direction direction) {
  return direction == Direction::kLowerIsBetter ? "lower" : "higher";
}

std::string BenchMachine::Fingerprint() const {
  DigestBuilder builder;
  builder.AddText(processor);
  builder.AddU32(static_cast<uint32_t>(processors));
  // Kernels of one machine differ in what they keep for themselves.
  builder.AddU64(static_cast<uint64_t>((memory_mib + 512) / 1024));
  return builder.Finish().Hex().substr(0, 16);
}

BenchMachine ThisMachine() {
  BenchMachine machine;
  machine.processor = ValueOf("/proc/cpuinfo", "model name");
  if (machine.processor.empty()) machine.processor = "unknown processor";
  machine.processors = UsableCpus();
  const std::string kib = ValueOf("/proc/meminfo", "MemTotal");
  machine.memory_mib = kib.empty() ? 0 : std::stoll(kib) / 1024;
  utsname names = {};
  if (uname(&names) == 0) machine.system = fmt::format("{} {}", names.sysname, names.release);
  return machine;
}

std::string ThisToolchain() {
#ifdef __clang__
  constexpr std::string_view kCompiler = "";  // __VERSION__ begins with it
#else
  constexpr std::string_view kCompiler = "g++ ";
#endif
  return fmt::format("{}{}", kCompiler, __VERSION__);
}

const BenchResult* BenchRun::Find(std::string_view name) const {
  const auto it = std::ranges::find(benchmarks, name, &BenchResult::name);
  return it == benchmarks.end() ? nullptr : &*it;
}

}  // namespace lockstep
