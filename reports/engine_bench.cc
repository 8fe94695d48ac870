#include "reports/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "caches/check.h"
#include "caches/registry.h"
#include "engine/kernels.h"

namespace lockstep {
namespace {

// Positions of the longest point.
int32_t LongestSequence(const EngineBenchOptions& options) {
  int32_t longest = 1;
  for (int32_t tokens : options.prefills) longest = std::max(longest, tokens);
  for (int32_t depth : options.depths) longest = std::max(longest, depth + options.decode_tokens);
  return longest;
}

class EngineBench {
 public:
  EngineBench(std::shared_ptr<const Model> model, const EngineBenchOptions& options)
      : options_(options),
        limits_(options.limits),
        meter_(std::move(model), {.max_positions = LongestSequence(options),
                                  .decode_tokens = options.decode_tokens,
                                  .seed = options.seed}) {
    if (options_.isas.empty()) options_.isas.emplace_back(SelectKernels().name);
    for (const std::string& isa : options_.isas) SelectKernels(isa);
    for (const std::string& cache : options_.caches) meter_.CheckCache(cache);
    result_.seed = options_.seed;
    MakePoints();
  }

  EngineBenchResult Run() {
    const auto count = static_cast<int32_t>(result_.points.size());
    for (int32_t round = 0; round < options_.rounds; ++round) {
      result_.rounds.push_back(MeasureRound());
      for (int32_t i = 0; i < count; ++i) {
        const int32_t index = round % 2 == 0 ? i : count - 1 - i;
        PointResult& point = result_.points[static_cast<size_t>(index)];
        const Timing timing = meter_.Measure(point.point);
        point.samples.push_back({.round = round,
                                 .seconds = timing.seconds,
                                 .limit_seconds = LimitSeconds(point),
                                 .digest = timing.digest,
                                 .load = timing.load});
        if (options_.on_sample) options_.on_sample(round * count + i + 1, options_.rounds * count);
      }
    }
    return std::move(result_);
  }

 private:
  void MakePoints() {
    for (const std::string& isa : options_.isas) {
      for (int32_t threads : options_.threads) {
        for (const std::string& cache : options_.caches) {
          for (int32_t tokens : options_.prefills) {
            AddPoint({Phase::kPrefill, tokens, cache, isa, threads});
          }
          for (int32_t depth : options_.depths) {
            AddPoint({Phase::kDecode, depth, cache, isa, threads});
          }
        }
      }
    }
  }

  void AddPoint(const EnginePoint& point) {
    const CacheSpec spec = ParseCacheSpec(point.cache);
    result_.points.push_back(
        {.point = point,
         .bits = fmt::format("{} {}+{} w{}{}", point.name(), RowTypeName(spec.key_type),
                             RowTypeName(spec.value_type), spec.window,
                             spec.window_type == RowType::kF16 ? "-f16" : ""),
         .tokens = meter_.TokensOf(point),
         .work = meter_.WorkOf(point)});
  }

  RoundLimits MeasureRound() {
    const LoadMeter load;
    RoundLimits round;
    for (int32_t threads : options_.threads) {
      const auto samples = MeasureLimits(&limits_, options_.isas, threads);
      round.samples.insert(round.samples.end(), samples.begin(), samples.end());
    }
    round.barrier_seconds = limits_.BarrierLatency();
    round.load = load.Load();
    return round;
  }

  double LimitSeconds(const PointResult& result) const {
    const std::string_view isa = InstructionSetOf(result.point.isa, limits_.instruction_sets());
    for (const LimitSample& sample : result_.rounds.back().samples) {
      if (sample.threads != result.point.threads || sample.isa != isa) continue;
      return SecondsAtBest(result.point.phase, result.work, sample);
    }
    LS_CHECK(false, "no limit for {} on {} threads", isa, result.point.threads);
    return 0;
  }

  EngineBenchOptions options_;
  MachineLimits limits_;
  EngineMeter meter_;
  EngineBenchResult result_;
};

}  // namespace

EngineBenchResult RunEngineBench(std::shared_ptr<const Model> model,
                                 const EngineBenchOptions& options) {
  return EngineBench(std::move(model), options).Run();
}

std::vector<std::string> DigestMismatches(std::span<const PointResult> points) {
  std::map<std::string, std::pair<Digest, const EnginePoint*>> expected;
  std::vector<std::string> lines;
  for (const PointResult& result : points) {
    for (const PointSample& sample : result.samples) {
      const auto [it, first] = expected.try_emplace(result.bits, sample.digest, &result.point);
      if (first || it->second.first == sample.digest) continue;
      const EnginePoint& point = result.point;
      const EnginePoint& reference = *it->second.second;
      lines.push_back(fmt::format(
          "{} on {}, {}, {} threads, round {}: logits {}, but {} on {}, {}, {} threads",
          point.name(), point.cache, point.isa, point.threads, sample.round, sample.digest.Hex(),
          it->second.first.Hex(), reference.cache, reference.isa, reference.threads));
    }
  }
  return lines;
}

Digest DigestOfPoints(std::span<const PointResult> points) {
  std::map<std::string, bool> seen;
  DigestBuilder builder;
  for (const PointResult& result : points) {
    if (result.samples.empty() || !seen.try_emplace(result.bits, true).second) continue;
    builder.AddText(result.bits);
    builder.AddU64(result.samples.front().digest.high);
    builder.AddU64(result.samples.front().digest.low);
  }
  return builder.Finish();
}

std::vector<double> Series(const PointResult& result,
                           const std::function<double(const PointSample&)>& value) {
  std::vector<double> series;
  for (const PointSample& sample : result.samples) series.push_back(value(sample));
  return series;
}

}  // namespace lockstep
