// Runs a cache script on a subject and on ModelCache side by side. After every operation everything
// that the contract says is compared, of every sequence that is alive: the outcome (done, granted,
// refused, which exception), lengths, rows to the bit as every query reads them, both hashes, the
// blocks in use.
#ifndef LOCKSTEP_PROPERTIES_SCRIPT_RUNNER_H_
#define LOCKSTEP_PROPERTIES_SCRIPT_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caches/kv_cache.h"
#include "oracle/model_cache.h"
#include "properties/operation_classes.h"
#include "properties/position_classes.h"
#include "properties/script.h"

namespace lockstep {

// A fault found in a subject: plain data.
struct ScriptFinding {
  int32_t op = 0;           // index of the operation after which it showed
  std::string clause = {};  // of caches/CONTRACT.md, the likeliest: "U5"
  std::string what = {};    // one sentence
};

// What ran, so that an agreement about nothing shows.
struct ScriptCounts {
  int64_t operations = 0;
  int64_t granted = 0;
  int64_t refused = 0;
  int64_t committed = 0;
  int64_t updated = 0;
  int64_t threw = 0;      // on both sides, with the same type
  int64_t exhausted = 0;  // of these, PoolExhausted
  int64_t rolled_back = 0;
  int64_t forked = 0;
  int64_t restored = 0;
  int64_t rows_compared = 0;
  int64_t allocations_failed = 0;  // on request, see failing_run.h
  PositionClassCounts positions = {};
  OperationClassCounts sequences = {};

  ScriptCounts& operator+=(const ScriptCounts& other);
};

struct ScriptRun {
  std::optional<ScriptFinding> finding;
  ScriptCounts counts;
};

// What is run, and what is expected of it.
struct ScriptSubject {
  std::function<std::unique_ptr<KvCache>(const CacheScript&)> make;
  ModelCacheOptions model;  // geometry, max_step_rows and blocks_available are filled in
  // Windows of the layers, where they are the geometry's; in model.windows otherwise. May be empty.
  std::function<std::vector<int32_t>(const KvGeometry&)> windows_of = {};
  bool compares_storage = true;  // the stored bytes are the encoded rows and nothing else [X2]
  bool forks = true;             // else kFork does nothing
  bool saves = true;             // else kSave does nothing
  // Shown every sequence after every operation, with how many of its layers have an open
  // reservation. May be empty.
  std::function<void(const KvCache& cache, int32_t open)> observe = {};
};

// The subject that script.cache names, from the registry. Throws Error for an unknown name.
ScriptSubject RegisteredSubject(std::string_view cache);

// Stops at the first finding.
ScriptRun RunScript(const CacheScript& script, const ScriptSubject& subject);

// What running a script finds, however it is run: here, or in a process of its own.
using ScriptJudge = std::function<std::optional<ScriptFinding>(const CacheScript&)>;

// The script with every operation left out that the finding does not need (ddmin: Zeller,
// Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002), then one
// of SimplerScripts after another until none of them finds anything any more or `tries_max` scripts
// were judged (a judge may need a process for each). The clause of the finding stays the same.
// REQUIRES: the judge finds something (LS_CHECK).
CacheScript ShrinkScript(const CacheScript& script, const ScriptJudge& judge,
                         int64_t tries_max = 200);
CacheScript ShrinkScript(const CacheScript& script, const ScriptSubject& subject);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_SCRIPT_RUNNER_H_
