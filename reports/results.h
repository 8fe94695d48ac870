// What benchmarks measured: one model, which every reader fills and every comparison and report
// reads. A run is one build measured on one machine in one session.
#ifndef LOCKSTEP_REPORTS_RESULTS_H_
#define LOCKSTEP_REPORTS_RESULTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What the machine could do, and what else it did, while a sample was taken. Nothing where it was
// not measured.
struct MachineState {
  std::optional<double> read_bandwidth_one = {};  // bytes/s, one thread
  std::optional<double> read_bandwidth_all = {};  // bytes/s, all processors together
  std::optional<double> barrier_seconds = {};     // between two threads
  std::optional<double> others = {};              // share of all processors' time, 0 to 1
  std::optional<double> steal = {};               // the same, taken by the hypervisor

  friend bool operator==(const MachineState&, const MachineState&) = default;
};

struct BenchSample {
  double value = 0;  // in the benchmark's unit, finite and positive
  // Samples of two runs with the same round were taken next to each other and are compared with
  // each other alone; -1: in no round.
  int32_t round = -1;
  // The least (or, where higher is better, the largest) value that the machine could give at that
  // moment. Where both runs have it, fractions of it are compared instead of values.
  std::optional<double> limit = {};
  MachineState state = {};

  friend bool operator==(const BenchSample&, const BenchSample&) = default;
};

enum class Direction { kLowerIsBetter, kHigherIsBetter };
std::string_view DirectionName(Direction direction);  // "lower", "higher"

struct BenchResult {
  std::string name;        // unique in its run
  std::string unit = "s";  // of the samples
  Direction direction = Direction::kLowerIsBetter;
  std::vector<BenchSample> samples = {};  // in the order in which they were taken
  // What does not depend on the machine's moment: "instructions", "allocations", "bytes",
  // "multiply_adds". Of one iteration; lower is better.
  std::map<std::string, double> counters = {};
  std::string digest = {};  // of the bits that it computed; empty: it does not say
  std::string bound = {};   // what it is measured against: "memory", "arithmetic"; may be empty
  // Judged by the time that its "bytes" take at the read bandwidth of "one" thread or of "all"
  // processors; empty: by its value.
  std::string limit_of = {};

  friend bool operator==(const BenchResult&, const BenchResult&) = default;
};

struct BenchMachine {
  std::string processor;    // as the system names it
  int32_t processors = 0;   // that the process may use
  int64_t memory_mib = 0;   // of the whole machine
  std::string system = {};  // kernel and release

  // 16 hexadecimal digits, equal for machines that agree in all but the system's release.
  std::string Fingerprint() const;

  friend bool operator==(const BenchMachine&, const BenchMachine&) = default;
};
BenchMachine ThisMachine();

// The compiler of this build: "g++ 12.2.0".
std::string ThisToolchain();

struct BenchRun {
  BenchMachine machine = {};
  std::string toolchain = {};  // compiler, version, kind of build
  std::string commit = {};     // what was built; empty: unknown
  std::string build = {};      // digest of the executable's bytes; empty: unknown
  std::string command = {};    // that repeats it
  std::string started = {};    // "2031-05-03T10:20:30Z"; empty: unknown
  uint64_t seed = 0;           // of what the harness draws
  std::vector<BenchResult> benchmarks = {};

  const BenchResult* Find(std::string_view name) const;

  friend bool operator==(const BenchRun&, const BenchRun&) = default;
};

// The run as text of a JSON object, and the JSON Schema (draft 4) that describes it. What one
// writes the other reads back equal.
std::string RunJson(const BenchRun& run);
std::string_view RunSchema();

// Throws Error for text that is no JSON, does not follow the schema, or names a benchmark twice;
// `where` names it in the message.
BenchRun ParseRun(const std::string& text, const std::string& where);

struct GoogleBenchmarkOptions {
  bool cpu_time = false;  // processor time instead of real time
  // User counters that do not depend on the machine's moment; others are left out.
  std::vector<std::string> counters = {"instructions", "allocations", "bytes", "multiply_adds"};
};

// What Google Benchmark (https://github.com/google/benchmark, docs/user_guide.md, "Output Formats")
// writes as JSON, of any project: repetitions become samples, aggregates are left out, times become
// seconds. A label of words "digest=HEX", "bound=NAME" and "limit=one" gives those. Throws Error
// for text that is no such JSON, for a benchmark that reports an error, and for one with aggregates
// alone.
BenchRun ParseGoogleBenchmark(const std::string& text, const std::string& where,
                              const GoogleBenchmarkOptions& options = {});

// A file of either kind.
BenchRun ReadRun(const std::string& path, const GoogleBenchmarkOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_RESULTS_H_
