#include "reports/script_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "caches/registry.h"
#include "properties/script_builder.h"
#include "properties/script_runner.h"

namespace lockstep {
namespace {

ScriptBenchResult BenchCache(const std::string& cache, const ScriptBenchOptions& options) {
  const ScriptSubject subject = RegisteredSubject(cache);
  Random random(options.seed);
  std::vector<CacheScript> scripts;
  for (int32_t i = 0; i < options.scripts; ++i) {
    scripts.push_back(GenerateScript(cache, random.Next(), options.operations));
  }
  ScriptBenchResult result{.cache = cache};
  for (int32_t round = 0; round < options.rounds; ++round) {
    ScriptCounts counts;
    const std::clock_t start = std::clock();
    for (const CacheScript& script : scripts) {
      const ScriptRun run = RunScript(script, subject);
      counts += run.counts;
      result.holds = result.holds && !run.finding;
    }
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    result.seconds = round == 0 ? seconds : std::min(result.seconds, seconds);
    result.operations = counts.operations;
    result.rows = counts.rows_compared;
  }
  return result;
}

}  // namespace

std::vector<ScriptBenchResult> RunScriptBench(const ScriptBenchOptions& options) {
  std::vector<std::string> caches = options.caches;
  if (caches.empty()) {
    for (const CacheSpec& spec : AllCaches()) caches.push_back(spec.name);
  }
  std::vector<ScriptBenchResult> results;
  for (const std::string& cache : caches) results.push_back(BenchCache(cache, options));
  return results;
}

Table ScriptTableOf(const std::vector<ScriptBenchResult>& results) {
  Table table{.header = {"cache", "operations", "rows compared", "operations/s", "verdict"}};
  for (const ScriptBenchResult& r : results) {
    const double rate = r.seconds > 0 ? static_cast<double>(r.operations) / r.seconds : 0;
    table.rows.push_back({r.cache, fmt::format("{}", r.operations), fmt::format("{}", r.rows),
                          fmt::format("{:.0f}", rate), r.holds ? "holds" : "DIFFERS"});
  }
  return table;
}

Digest ScriptBenchDigest(const std::vector<ScriptBenchResult>& results) {
  DigestBuilder builder;
  for (const ScriptBenchResult& r : results) {
    builder.AddText(r.cache);
    builder.AddU64(static_cast<uint64_t>(r.operations));
    builder.AddU64(static_cast<uint64_t>(r.rows));
    builder.AddU32(r.holds ? 1 : 0);
  }
  return builder.Finish();
}

}  // namespace lockstep
