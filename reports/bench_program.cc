#include "reports/bench_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "caches/digest.h"
#include "caches/error.h"
#include "caches/file_io.h"
#include "caches/temporary_folder.h"
#include "reports/run_program.h"

namespace lockstep {
namespace {

constexpr int kCountTimeoutSeconds = 600;
constexpr std::string_view kManualTime = "/manual_time";

// `name` and nothing else, as an extended regular expression.
std::string ExactFilter(const std::string& name) {
  std::string filter = "^";
  for (const char c : name) {
    if (std::string_view(".[]{}()*+?^$|\\").find(c) != std::string_view::npos) filter += '\\';
    filter += c;
  }
  return filter + "$";
}

std::string LastLineOf(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == text.npos) return "it printed nothing";
  const size_t newline = text.rfind('\n', end);
  const size_t begin = newline == text.npos ? 0 : newline + 1;
  return text.substr(begin, end + 1 - begin);
}

// What a dump of callgrind says: its trigger, "Client Request: NAME", and its total.
struct Dump {
  std::string name;
  double instructions = 0;
};
Dump ReadDump(const std::string& path) {
  Dump dump;
  std::istringstream lines(ReadWholeTextFile(path));
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kTrigger = "desc: Trigger: Client Request: ";
    constexpr std::string_view kTotals = "summary: ";
    if (line.starts_with(kTrigger)) dump.name = line.substr(kTrigger.size());
    if (!line.starts_with(kTotals)) continue;
    int64_t total = 0;
    std::from_chars(line.data() + kTotals.size(), line.data() + line.size(), total);
    dump.instructions = static_cast<double>(total);
    break;
  }
  return dump;
}

}  // namespace

BenchProgram::BenchProgram(std::string path, BenchProgramOptions options)
    : path_(std::move(path)), options_(std::move(options)) {
  if (!std::filesystem::is_regular_file(path_) || access(path_.c_str(), X_OK) != 0) {
    throw Error({path_, "is no executable",
                 "name an executable of Google Benchmark, or a build "
                 "folder with lockstep_bench in it"});
  }
  build_ = DigestOfBytes(ReadWholeFile(path_)).Hex();
  std::vector<std::string> argv = {path_, "--benchmark_list_tests",
                                   "--benchmark_filter=" + options_.filter};
  if (options_.small) argv.emplace_back("--small");
  const ProgramEnd end = RunProgram(argv, options_.timeout_seconds);
  std::istringstream lines(end.out);
  for (std::string line; std::getline(lines, line);) names_.push_back(line);
  if (end.exit_code == 0 && !names_.empty()) return;
  throw Error(
      {path_,
       fmt::format("lists no benchmark that '{}' finds: {}", options_.filter, LastLineOf(end.err)),
       "see its --benchmark_list_tests"});
}

Measured BenchProgram::Measure(const std::string& name, MachineProbe* probe) {
  if (!has_before_) before_ = probe->Measure();
  const TemporaryFolder folder;
  const std::string file = folder.File("out.json");
  std::vector<std::string> argv = {path_,
                                   "--benchmark_filter=" + ExactFilter(name),
                                   fmt::format("--benchmark_min_time={}", options_.seconds),
                                   "--benchmark_repetitions=1",
                                   "--benchmark_out_format=json",
                                   "--benchmark_out=" + file};
  if (options_.small) argv.emplace_back("--small");
  const ProgramEnd end = RunProgram(argv, options_.timeout_seconds);
  if (end.exit_code != 0 || !std::filesystem::exists(file)) {
    throw Error({fmt::format("{}: benchmark '{}'", path_, name),
                 fmt::format("failed: {}", LastLineOf(end.err)), "run it by hand"});
  }
  const MachineState after = probe->Measure();
  const std::string text = ReadWholeTextFile(file);
  const BenchRun run =
      ParseGoogleBenchmark(text, fmt::format("{} '{}'", path_, name), options_.reading);
  if (run.benchmarks.size() != 1 || run.benchmarks[0].samples.size() != 1) {
    throw Error({fmt::format("{}: benchmark '{}'", path_, name),
                 fmt::format("gave {} benchmarks for one", run.benchmarks.size()),
                 "give each benchmark a name of its own"});
  }
  const BenchResult& result = run.benchmarks[0];
  toolchain_ = run.toolchain;
  Measured measured = {.sample = result.samples[0],
                       .counters = result.counters,
                       .digest = result.digest,
                       .bound = result.bound,
                       .limit_of = result.limit_of};
  measured.sample.state = Between(before_, after);
  before_ = after;
  has_before_ = true;
  const MachineState& state = measured.sample.state;
  const auto& bandwidth =
      result.limit_of == "all" ? state.read_bandwidth_all : state.read_bandwidth_one;
  const auto bytes = result.counters.find("bytes");
  if (!result.limit_of.empty() && bandwidth && bytes != result.counters.end()) {
    measured.sample.limit = bytes->second / *bandwidth;
  }
  const auto instructions = instructions_.find(name);
  if (instructions != instructions_.end()) {
    measured.counters["instructions"] = instructions->second;
  }
  return measured;
}

BenchProgram::Counting BenchProgram::CountInstructions() {
  if (std::filesystem::path(path_).filename() != "lockstep_bench") return Counting::kForeign;
  const TemporaryFolder folder;
  const ProgramEnd end = RunProgram(
      {"sh", "-c", "command -v valgrind >/dev/null || exit 3; exec valgrind \"$@\"", "sh",
       "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=" + folder.File("count"),
       path_, "--small", "--count", "--filter=" + options_.filter},
      kCountTimeoutSeconds);
  if (end.exit_code == 3) return Counting::kNoValgrind;
  if (end.exit_code != 0) {
    throw Error({path_ + " under valgrind", fmt::format("failed: {}", LastLineOf(end.err)),
                 "run it by hand, or go on with --no-count"});
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const Dump dump = ReadDump(entry.path().string());
    if (dump.name.empty()) continue;
    if (dump.instructions <= 0) {
      throw Error({fmt::format("{} under valgrind, '{}'", path_, dump.name),
                   "has no total in callgrind's file", "go on with --no-count, and report it"});
    }
    // Google Benchmark lists a name with a suffix where the benchmark takes the time itself.
    for (const std::string& name : names_) {
      const bool same = name == dump.name || name == dump.name + std::string(kManualTime);
      if (same) instructions_[name] = dump.instructions;
    }
  }
  return instructions_.empty() ? Counting::kNothing : Counting::kCounted;
}

}  // namespace lockstep
