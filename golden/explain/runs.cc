#include "golden/explain/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "caches/memory_watch.h"
#include "engine/kernels.h"
#include "oracle/model_cache.h"

namespace lockstep {
namespace {

using CacheMaker = std::function<std::unique_ptr<KvCache>(
    const CacheSpec& spec, const KvGeometry& geometry, int32_t blocks)>;

// The map from position to row that stores rows as the cache does, cut into the same steps.
std::unique_ptr<KvCache> MakeModelCache(const CacheSpec& spec, const KvGeometry& geometry,
                                        int32_t blocks) {
  const int32_t step_rows = MakeScriptCache(spec, geometry, blocks)->max_step_rows();
  return std::make_unique<ModelCache>(ModelCacheOptions{.geometry = geometry,
                                                        .key_type = spec.key_type,
                                                        .value_type = spec.value_type,
                                                        .window = spec.window,
                                                        .window_type = spec.window_type,
                                                        .max_step_rows = step_rows,
                                                        .windows = WindowsOf(spec, geometry)});
}

CacheMaker MakerOf(const RunWay& way) {
  if (way.model_cache) return MakeModelCache;
  if (way.record.subject.make_cache) return way.record.subject.make_cache;
  return MakeScriptCache;
}

}  // namespace

RunWay ExplainedWay(const std::string& cache, const ExplainOptions& options) {
  RunWay way;
  way.name = fmt::format("cache {}", cache);
  way.record = {.cache = cache,
                .kernels = options.kernels != nullptr ? options.kernels : &SelectKernels(),
                .threads = options.threads,
                .models = options.models,
                .subject = options.subject};
  return way;
}

std::vector<RunWay> WaysBeside(const Scenario& scenario, const std::string& cache,
                               const ExplainOptions& options) {
  RunWay plain = ExplainedWay(cache, options);
  plain.record.subject = {};
  std::vector<RunWay> ways;
  const std::string rows = RowsName(ParseCacheSpec(cache));
  for (const RowsGroup& group : GroupsOf(scenario)) {
    for (const std::string& other : group.caches) {
      if (group.rows != rows || other == cache) continue;
      ways.push_back(plain);
      ways.back().name = fmt::format("cache {}", other);
      ways.back().record.cache = other;
    }
  }
  ways.push_back(plain);
  ways.back().name = "the model cache";
  ways.back().model_cache = true;
  ways.push_back(plain);
  ways.back().name = fmt::format("cache {}, legacy write path", cache);
  ways.back().record.legacy = true;
  for (const KernelTable* kernels : AvailableKernels()) {
    if (kernels == plain.record.kernels) continue;
    ways.push_back(plain);
    ways.back().name = fmt::format("cache {}, kernels {}", cache, kernels->name);
    ways.back().record.kernels = kernels;
  }
  if (options.threads != 1) {
    ways.push_back(plain);
    ways.back().name = fmt::format("cache {}, 1 thread", cache);
    ways.back().record.threads = 1;
  }
  return ways;
}

GoldenFile FactsOfWay(const Scenario& scenario, const RunWay& way) {
  RecordOptions record = way.record;
  record.keep_values = false;
  record.subject.make_cache = MakerOf(way);
  return FactsOfCache(Record(scenario, record).golden, {});
}

const RecordedStep* ValuedRun::StepAt(int32_t step) const {
  if (step < 0 || step >= std::ssize(recording.steps)) return nullptr;
  return &recording.steps[static_cast<size_t>(step)];
}

ValuedRun RunWithValues(const Scenario& scenario, const RunWay& way, int32_t layer) {
  std::optional<MemoryWatch> watch;
  if (way.poisoned) watch.emplace(MemoryWatchOptions{});
  ValuedRun run;
  const auto log = std::make_shared<ViewLog>();
  log->layer = layer;
  RecordOptions record = way.record;
  record.keep_values = true;
  record.subject.make_cache = [make = MakerOf(way), log](const CacheSpec& spec,
                                                         const KvGeometry& geometry,
                                                         int32_t blocks) {
    return std::make_unique<LoggingCache>(make(spec, geometry, blocks), log);
  };
  record.on_state = [&](int32_t op, int32_t sequence, const KvCache& cache) {
    std::vector<KvRows>& layers = run.states[{op, sequence}];
    for (int32_t l = 0; l < cache.geometry().num_layers; ++l) {
      KvView view;
      cache.View(l, &view);
      layers.push_back(RowsByPosition(view, cache.geometry().kv_stride()));
    }
    log->op = op + 1;
  };
  run.recording = Record(scenario, record);
  run.log = *log;
  return run;
}

std::optional<Stage> FindStage(std::string_view name) {
  for (int stage = 0; stage <= static_cast<int>(Stage::kLogits); ++stage) {
    if (StageName(static_cast<Stage>(stage)) == name) return static_cast<Stage>(stage);
  }
  return std::nullopt;
}

std::optional<StageRowsAt> RowsAt(const ValuedRun& run, const Fact& place) {
  const std::optional<Stage> stage = FindStage(place.base_name());
  const RecordedStep* step = run.StepAt(place.step);
  if (!stage || step == nullptr || step->sequence != place.sequence) return std::nullopt;
  for (const RecordingTrace::Entry& entry : step->entries) {
    if (entry.stage != *stage) continue;
    if (place.layer >= 0 && entry.layer != place.layer) continue;
    // What the engine returned stands for its trace.
    const bool logits = *stage == Stage::kLogits && step->logits.size() == entry.rows.size();
    return StageRowsAt{
        .stage = *stage,
        .layer = entry.layer,
        .width = entry.width,
        .positions = entry.positions,
        .rows = logits ? std::span<const float>(step->logits) : std::span<const float>(entry.rows)};
  }
  return std::nullopt;
}

std::optional<std::vector<float>> RowsTokenByToken(const Scenario& scenario, const RunWay& way,
                                                   const RecordedStep& step,
                                                   const StageRowsAt& at) {
  // Of the last token alone: the same step in any cut.
  Scenario cut = scenario;
  cut.step = 1;
  const ValuedRun run = RunWithValues(cut, way, at.layer);
  std::vector<float> rows;
  for (int32_t position : at.positions) {
    const auto found = std::ranges::find_if(run.recording.steps, [&](const RecordedStep& s) {
      return s.op == step.op && s.sequence == step.sequence &&
             s.positions == std::vector<int32_t>{position};
    });
    if (found == run.recording.steps.end()) return std::nullopt;
    for (const RecordingTrace::Entry& entry : found->entries) {
      if (entry.layer != at.layer || entry.stage != at.stage) continue;
      rows.insert(rows.end(), entry.rows.begin(), entry.rows.end());
    }
  }
  if (rows.size() != at.rows.size()) return std::nullopt;
  return rows;
}

}  // namespace lockstep
