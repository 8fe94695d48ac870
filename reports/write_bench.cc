#include "reports/write_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "caches/error.h"
#include "caches/random.h"
#include "caches/registry.h"
#include "engine/stopwatch.h"
#include "reports/bench/write_case.h"
#include "reports/engine_report.h"
#include "reports/statistics.h"

namespace lockstep {
namespace {

using internal::CopyCase;
using internal::WriteCase;
using internal::WriteGeometry;
using internal::WritePath;

template <typename Case>
double SecondsOfToken(Case* subject, int32_t tokens) {
  const Stopwatch stopwatch;
  subject->Run();
  return stopwatch.seconds() / tokens;
}

WriteBenchResult BenchWrites(const std::string& cache, const WriteGeometry& geometry,
                             const WriteBenchOptions& options) {
  WriteCase update(cache, geometry, WritePath::kUpdate, options.tokens);
  WriteCase direct(cache, geometry, WritePath::kDirect, options.tokens);
  CopyCase copy(geometry, options.tokens);
  update.Run();
  direct.Run();
  copy.Run();
  WriteBenchResult result = {.geometry = std::string(geometry.name),
                             .cache = cache,
                             .handed_over = update.handed_over() / options.tokens,
                             .formula = geometry.copied_bytes(),
                             .equal_bits = update.digest() == direct.digest()};
  const auto both = [&](auto* subject) { return SecondsOfToken(subject, options.tokens) / 2; };
  for (int32_t round = 0; round < options.rounds; ++round) {
    double update_seconds = both(&update), direct_seconds = both(&direct);
    const double copy_seconds = both(&copy) + both(&copy);
    direct_seconds += both(&direct);
    update_seconds += both(&update);
    result.update_seconds.push_back(update_seconds);
    result.direct_seconds.push_back(direct_seconds);
    result.copy_seconds.push_back(copy_seconds);
  }
  return result;
}

std::string MicrosecondsOf(const std::vector<double>& seconds) {
  return fmt::format("{:.2f}", Quantile(seconds, 0.5) * 1e6);
}

}  // namespace

std::vector<WriteBenchResult> RunWriteBench(const WriteBenchOptions& options) {
  std::vector<std::string> caches = options.caches;
  if (caches.empty()) {
    for (const CacheSpec& spec : AllCaches()) {
      if (spec.grants_host_slots) caches.push_back(spec.name);
    }
  }
  for (const std::string& cache : caches) {
    if (ParseCacheSpec(cache).grants_host_slots) continue;
    throw Error({fmt::format("cache '{}'", cache), "grants no slots: it has no direct write path",
                 "choose simple or a paged cache"});
  }
  std::vector<WriteBenchResult> results;
  for (const WriteGeometry& geometry : internal::WriteGeometries()) {
    for (const std::string& cache : caches) {
      results.push_back(BenchWrites(cache, geometry, options));
    }
  }
  return results;
}

bool WriteBenchHolds(const std::vector<WriteBenchResult>& results) {
  return std::ranges::all_of(results, [](const WriteBenchResult& r) {
    return r.equal_bits && r.handed_over == r.formula;
  });
}

Table WriteTableOf(const std::vector<WriteBenchResult>& results) {
  Table table{.header = {"geometry", "cache", "bytes saved a token", "2 * kv_stride * 4 * layers",
                         "update us", "direct us", "saved us", "memcpy us", "saved / memcpy",
                         "bits"}};
  for (const WriteBenchResult& r : results) {
    std::vector<double> saved;
    for (size_t i = 0; i < r.update_seconds.size(); ++i) {
      saved.push_back(r.update_seconds[i] - r.direct_seconds[i]);
    }
    const RatioEstimate ratio = EstimateRatio(saved, r.copy_seconds, Random(1));
    table.rows.push_back(
        {r.geometry, r.cache, fmt::format("{}", r.handed_over), fmt::format("{}", r.formula),
         MicrosecondsOf(r.update_seconds), MicrosecondsOf(r.direct_seconds), MicrosecondsOf(saved),
         MicrosecondsOf(r.copy_seconds),
         fmt::format("{:.2f} [{:.2f}, {:.2f}]", ratio.median, ratio.low, ratio.high),
         r.equal_bits ? "equal" : "CHANGED"});
  }
  return table;
}

std::string WriteMarkdown(const std::vector<WriteBenchResult>& results,
                          const std::string& command) {
  return fmt::format(
             "## What the direct write saves\n\n`{}`: {}. A token's K and V rows go into every "
             "layer, from where a projection would compute them: into the slot on the direct path, "
             "into scratch memory and from there by Update on the legacy path. Times are medians "
             "over rounds of update, direct, memcpy, memcpy, direct, update; the last ratio is the "
             "time saved over that of a plain memcpy of the bytes saved, with a 95 % interval.\n\n",
             command, MachineLine()) +
         TableMarkdown(WriteTableOf(results));
}

}  // namespace lockstep
