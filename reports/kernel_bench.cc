#include "reports/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "engine/kernels.h"
#include "engine/stopwatch.h"
#include "reports/engine_meter.h"
#include "reports/engine_report.h"
#include "reports/kernels/cases.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

// Seconds of one call, over as many calls as `seconds` hold.
double SecondsOfCall(const internal::KernelCase& kernel, const KernelTable& table, double seconds) {
  int32_t calls = 0;
  const Stopwatch stopwatch;
  do {
    kernel.run(table);
    ++calls;
  } while (stopwatch.seconds() < seconds);
  return stopwatch.seconds() / calls;
}

void AddSample(const internal::KernelCase& kernel, const KernelBenchOptions& options,
               const LimitSample& limits, KernelResult* result) {
  const double memory = kernel.work.bytes / limits.read_bandwidth;
  const double arithmetic = kernel.work.dot_multiply_adds / limits.dot_peak +
                            kernel.work.fma_multiply_adds / limits.fma_peak;
  result->seconds.push_back(SecondsOfCall(kernel, SelectKernels(result->isa), options.seconds));
  result->limit_seconds.push_back(std::max(memory, arithmetic));
  result->memory_bound = memory >= arithmetic;
}

std::string Microseconds(double seconds) { return fmt::format("{:.1f}", seconds * 1e6); }

}  // namespace

std::vector<KernelResult> RunKernelBench(const KernelBenchOptions& options) {
  std::vector<std::string> isas = options.isas;
  if (isas.empty()) {
    for (const KernelTable* table : AvailableKernels()) isas.emplace_back(table->name);
  }
  for (const std::string& isa : isas) SelectKernels(isa);
  MachineLimits limits(options.limits);
  const auto makers = internal::KernelCases(options.array_bytes, Random(options.seed));
  std::vector<KernelResult> results;
  int32_t done = 0;
  for (const internal::KernelCaseMaker& make : makers) {
    const internal::KernelCase kernel = make();
    const size_t first = results.size();
    const size_t tables = kernel.uses_table ? isas.size() : 1;
    for (const std::string& isa : std::span(isas).last(tables)) {
      results.push_back({.kernel = kernel.name, .isa = isa, .work = kernel.work});
      kernel.run(SelectKernels(isa));  // also a warm-up
      results.back().digest = kernel.digest();
    }
    for (int32_t round = 0; round < options.rounds; ++round) {
      auto now = MeasureLimits(&limits, std::span(isas).last(tables), 1);
      if (kernel.streams.size() >= MachineLimits::kOwnMemoryMin) {
        const double bandwidth = limits.ReadBandwidthOf(kernel.streams);
        for (LimitSample& sample : now) sample.read_bandwidth = bandwidth;
      }
      for (size_t i = 0; i < tables; ++i) {
        AddSample(kernel, options, now[i], &results[first + i]);
      }
    }
    if (options.on_sample) options.on_sample(++done, static_cast<int32_t>(makers.size()));
  }
  return results;
}

std::vector<std::string> KernelMismatches(const std::vector<KernelResult>& results) {
  std::map<std::string, const KernelResult*> first;
  std::vector<std::string> lines;
  for (const KernelResult& result : results) {
    const KernelResult& reference = *first.try_emplace(result.kernel, &result).first->second;
    if (reference.digest == result.digest) continue;
    lines.push_back(fmt::format("{} on {}: {}, but {} on {}", result.kernel, result.isa,
                                result.digest.Hex(), reference.digest.Hex(), reference.isa));
  }
  return lines;
}

Table KernelTableOf(const std::vector<KernelResult>& results) {
  Table table{.header = {"kernel", "table", "us a call", "GB/s", "Gmadd/s", "limit", "limit us",
                         "of the limit"}};
  for (const KernelResult& result : results) {
    std::vector<double> fractions;
    for (size_t i = 0; i < result.seconds.size(); ++i) {
      fractions.push_back(100 * result.limit_seconds[i] / result.seconds[i]);
    }
    const double seconds = Summarize(result.seconds).median;
    const Summary fraction = Summarize(fractions);
    const double multiply_adds = result.work.dot_multiply_adds + result.work.fma_multiply_adds;
    table.rows.push_back(
        {result.kernel, result.isa, Microseconds(seconds),
         fmt::format("{:.1f}", result.work.bytes / seconds * 1e-9),
         fmt::format("{:.1f}", multiply_adds / seconds * 1e-9),
         result.memory_bound ? "memory" : "arithmetic",
         Microseconds(Summarize(result.limit_seconds).median),
         fmt::format("{:.1f} % [{:.1f}, {:.1f}]", fraction.median, fraction.low, fraction.high)});
  }
  return table;
}

std::string KernelMarkdown(const std::vector<KernelResult>& results, const std::string& command) {
  return fmt::format(
             "## Single kernels against their limits\n\n`{}`: one thread; {}. The limit of a "
             "kernel "
             "is the larger of two times: its bytes, read and written, at the bandwidth at which "
             "the memory that it reads is read alone, in the same round, and its multiply-adds at "
             "the peaks of its instruction set.\n\n",
             command, MachineLine()) +
         TableMarkdown(KernelTableOf(results));
}

std::string KernelJson(const std::vector<KernelResult>& results, const std::string& command) {
  nlohmann::ordered_json json = {
      {"command", command}, {"machine", MachineLine()}, {"mismatches", KernelMismatches(results)}};
  for (const KernelResult& result : results) {
    json["kernels"].push_back({{"kernel", result.kernel},
                               {"isa", result.isa},
                               {"bytes", result.work.bytes},
                               {"dot_multiply_adds", result.work.dot_multiply_adds},
                               {"fma_multiply_adds", result.work.fma_multiply_adds},
                               {"digest", result.digest.Hex()},
                               {"seconds", result.seconds},
                               {"limit_seconds", result.limit_seconds}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep
