// How fast the engine is, beside what the machine can do at most at the same moment.
//
// A run is a number of rounds. Each round measures the machine's limits and then every point once,
// forwards in even rounds and backwards in odd ones, so that a drift of the machine meets all of
// them alike. What is compared is a fraction of the limit (SecondsAtBest) of the same round.
//
// Speed counts only with the same bits: every sample carries a digest of its logits.
#ifndef LOCKSTEP_REPORTS_ENGINE_BENCH_H_
#define LOCKSTEP_REPORTS_ENGINE_BENCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caches/digest.h"
#include "engine/model.h"
#include "reports/engine_meter.h"
#include "reports/limits.h"
#include "reports/work.h"

namespace lockstep {

struct EngineBenchOptions {
  std::vector<std::string> isas;  // kernel tables; empty: the one that SelectKernels gives
  std::vector<int32_t> threads = {1, 2};
  std::vector<int32_t> prefills = {128, 512};
  std::vector<int32_t> depths = {0, 1024};
  std::vector<std::string> caches = {"simple", "quantized/f16+f16/w0"};
  int32_t decode_tokens = 32;
  int32_t rounds = 9;
  uint64_t seed = 1;  // of the prompt
  LimitOptions limits;
  std::function<void(int32_t done, int32_t total)> on_sample = {};  // progress, may be empty
};

struct RoundLimits {
  std::vector<LimitSample> samples;
  std::optional<double> barrier_seconds;
  std::optional<ForeignLoad> load;  // while the limits were measured
};

struct PointSample {
  int32_t round = 0;
  double seconds = 0;        // of all tokens
  double limit_seconds = 0;  // the same at the round's limits
  Digest digest = {};        // of the logits: of the last token, or of every decode step
  std::optional<ForeignLoad> load = {};

  double fraction() const { return limit_seconds / seconds; }
};

struct PointResult {
  EnginePoint point;
  std::string bits;   // points with the same text have to have the same digest
  double tokens = 0;  // of one sample
  Work work = {};     // of one sample
  std::vector<PointSample> samples = {};
};

struct EngineBenchResult {
  uint64_t seed = 0;
  std::vector<PointResult> points;
  std::vector<RoundLimits> rounds;
};

// Throws Error for an unknown kernel table or cache, a cache that cannot hold the model's heads,
// and for points that do not fit into the model's context.
EngineBenchResult RunEngineBench(std::shared_ptr<const Model> model,
                                 const EngineBenchOptions& options);

// One line for each sample whose digest is not that of the first sample with the same `bits`.
std::vector<std::string> DigestMismatches(std::span<const PointResult> points);

// Over the digests of all points, each group of equal `bits` once, in order.
Digest DigestOfPoints(std::span<const PointResult> points);

// The samples of a point in all rounds, as one number each.
std::vector<double> Series(const PointResult& result,
                           const std::function<double(const PointSample&)>& value);

}  // namespace lockstep

#endif  // LOCKSTEP_REPORTS_ENGINE_BENCH_H_
