// lockstep_bench: the benchmarks of lockstep under Google Benchmark, each of its flags included.
//
//   lockstep_bench [--small] [--benchmark_...]     measure
//   lockstep_bench [--small] --digests             run each once, print what it computed
//   valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file=FILE
//     lockstep_bench [--small] --count             one dump a benchmark, FILE.1, FILE.2, ..., which
//                                                  its name heads, of the second run alone
//
// A benchmark's label says what it computed and what bounds it: "digest=HEX bound=memory", and
// "limit=one" or "limit=all" where a comparison judges it by the read bandwidth of one thread or
// all processors. Its counters are of one iteration: bytes moved, multiply-adds, allocations.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <map>
#include <regex>

#include "caches/error.h"
#include "caches/failing_new.h"
#include "engine/math.h"
#include "reports/bench/entries.h"
#include "reports/results.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define LOCKSTEP_HAS_CALLGRIND 1
#endif

namespace lockstep::internal {
namespace {

struct BenchArguments {
  bool small = false;
  bool digests = false;
  bool count = false;
  std::string filter = ".*";  // of --count
};

BenchArguments ParseArguments(int argc, char** argv) {
  BenchArguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    constexpr std::string_view kFilter = "--filter=";
    if (word == "--small") {
      arguments.small = true;
    } else if (word == "--digests") {
      arguments.digests = true;
    } else if (word == "--count") {
      arguments.count = true;
    } else if (word.starts_with(kFilter)) {
      arguments.filter = word.substr(kFilter.size());
    } else {
      throw Error({word, "is no flag", "see --help, and the top of reports/bench/main.cc"});
    }
  }
  return arguments;
}

// Instructions of the second run of each benchmark that the filter finds, as callgrind counts them.
// Teams of threads wait in loops, whose turns are chance: those are left out.
void Count(const std::vector<BenchEntry>& entries, const std::string& filter) {
#if LOCKSTEP_HAS_CALLGRIND
  const std::regex wanted(filter, std::regex::extended);
  for (const BenchEntry& entry : entries) {
    if (!std::regex_search(entry.name, wanted)) continue;
    const MadeBench made = entry.make();
    if (made.threads > 1) continue;
    made.run();
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    made.run();
    CALLGRIND_DUMP_STATS_AT(entry.name.c_str());
    CALLGRIND_STOP_INSTRUMENTATION;
  }
#else
  throw Error({"--count",
               fmt::format("{} benchmarks, of which '{}' are wanted, but built without valgrind's "
                           "header",
                           entries.size(), filter),
               "install valgrind and build again"});
#endif
}

// False when two entries that must compute the same bits do not.
bool PrintDigests(const std::vector<BenchEntry>& entries) {
  std::map<std::string, Digest> bits;
  bool equal = true;
  for (const BenchEntry& entry : entries) {
    const MadeBench made = entry.make();
    made.run();
    const Digest digest = made.digest();
    const bool same = bits.try_emplace(entry.bits, digest).first->second == digest;
    equal = equal && same;
    fmt::print("{}  {}{}\n", digest.Hex(), entry.name, same ? "" : "  BITS CHANGED");
  }
  DigestBuilder builder;
  for (const auto& [name, digest] : bits) {
    builder.AddText(name);
    builder.AddU64(digest.high);
    builder.AddU64(digest.low);
  }
  fmt::print("digest {}\n", builder.Finish().Hex());
  return equal;
}

std::string LabelOf(const MadeBench& made) {
  std::string label = "digest=" + made.digest().Hex();
  if (!made.bound.empty()) label += " bound=" + made.bound;
  if (made.judged_by_limit) label += made.threads > 1 ? " limit=all" : " limit=one";
  return label;
}

void Measure(benchmark::State& state, const BenchEntry& entry) {
  const MadeBench made = entry.make();
  made.run();  // makes what the first run makes
  const int64_t before = failing_new::allocations;
  made.run();
  const int64_t allocations = failing_new::allocations - before;
  for (auto iteration : state) {
    made.run();
    if (made.seconds) state.SetIterationTime(made.seconds());
  }
  state.counters["allocations"] = static_cast<double>(allocations);
  if (made.work.bytes > 0) state.counters["bytes"] = made.work.bytes;
  const double multiply_adds = made.work.dot_multiply_adds + made.work.fma_multiply_adds;
  if (multiply_adds > 0) state.counters["multiply_adds"] = multiply_adds;
  state.SetLabel(LabelOf(made));
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  CheckFloatingPointEnvironment();
  const BenchArguments arguments = ParseArguments(argc, argv);
  const std::vector<BenchEntry> entries = AllBenchEntries(arguments.small);
  if (arguments.count) {
    Count(entries, arguments.filter);
    return 0;
  }
  if (arguments.digests) return PrintDigests(entries) ? 0 : 1;
  for (const BenchEntry& entry : entries) {
    const auto measure = [&entry](benchmark::State& state) { Measure(state, entry); };
    auto* registered = benchmark::RegisterBenchmark(entry.name.c_str(), measure);
    if (entry.name.starts_with("engine/")) registered->UseManualTime();
  }
  benchmark::AddCustomContext("lockstep_processor", ThisMachine().processor);
  benchmark::AddCustomContext("lockstep_toolchain", ThisToolchain());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace lockstep::internal

int main(int argc, char** argv) {
  try {
    return lockstep::internal::Main(argc, argv);
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "lockstep_bench: {}\n", error.what());
    return 2;
  }
}
