// Runs of a scenario with the rows of every stage kept, for both sides of an explanation.
#ifndef LOCKSTEP_GOLDEN_EXPLAIN_RUNS_H_
#define LOCKSTEP_GOLDEN_EXPLAIN_RUNS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "golden/explain.h"
#include "golden/record.h"
#include "golden/view_log.h"

namespace lockstep {

// A way to run a scenario that gives the same facts.
struct RunWay {
  std::string name;
  RecordOptions record;
  bool model_cache = false;  // instead of the named cache
  bool poisoned = false;     // memory of caches that holds no row reads as NaN
};

// The ways that are tried for the old side of a run on `cache`, the likeliest first.
std::vector<RunWay> WaysBeside(const Scenario& scenario, const std::string& cache,
                               const ExplainOptions& options);

// The run that is explained.
RunWay ExplainedWay(const std::string& cache, const ExplainOptions& options);

// The facts that do not depend on the cache.
GoldenFile FactsOfWay(const Scenario& scenario, const RunWay& way);

// Everything.
struct ValuedRun {
  Recording recording;
  ViewLog log;  // of one layer
  // What each sequence held after each operation: by layer.
  std::map<std::pair<int32_t, int32_t>, std::vector<KvRows>> states = {};

  const RecordedStep* StepAt(int32_t step) const;
};
ValuedRun RunWithValues(const Scenario& scenario, const RunWay& way, int32_t layer);

// The rows of a stage of a recorded step: by the fact's layer and name. Nothing for other facts.
struct StageRowsAt {
  Stage stage = Stage::kEmbedding;
  int32_t layer = 0;  // as the trace has it
  int64_t width = 0;
  std::span<const int32_t> positions;
  std::span<const float> rows;
};
std::optional<StageRowsAt> RowsAt(const ValuedRun& run, const Fact& place);

// The stage of that name.
std::optional<Stage> FindStage(std::string_view name);

// The rows of the place as a run of one token a step gives them, when that is possible.
std::optional<std::vector<float>> RowsTokenByToken(const Scenario& scenario, const RunWay& way,
                                                   const RecordedStep& step, const StageRowsAt& at);

}  // namespace lockstep

#endif  // LOCKSTEP_GOLDEN_EXPLAIN_RUNS_H_
