// The conformance kit: a cache that somebody else wrote, against every clause of the contract that
// scripts and the engine can judge.
//
//   L0  protocol and gating: what is refused, and with which status
//   L1  bytes: rows, lengths, gaps, rollbacks
//   L2  logits: the engine runs on the plug-in, direct and legacy, against the model cache
//   L3  sharing: forks
//   L4  faults and hostile input: hostile_checks.h
//
// Whatever calls the plug-in runs in a process of its own (isolated_run.h): a crash, a hang or an
// end of the process is a finding, and the run goes on.
#ifndef LOCKSTEP_PROPERTIES_CONFORM_H_
#define LOCKSTEP_PROPERTIES_CONFORM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "caches/plugin_cache.h"
#include "properties/hostile_checks.h"
#include "properties/script.h"

namespace lockstep {

inline constexpr int32_t kConformLevelMax = 4;

struct ConformOptions {
  std::shared_ptr<const PluginLibrary> plugin;
  int32_t level = kConformLevelMax;  // the highest that runs
  uint64_t seed = 1;
  int32_t scripts = 1500;           // of levels 0 to 3
  int32_t hostile_scripts = 100;    // random ones, of each check of level 4
  int32_t operations = 40;          // a script
  int32_t ms_max = 5000;            // of one script
  std::vector<std::string> checks;  // of level 4, by clause, and nothing else; empty: everything
  // Progress, may be empty: the clause or level, scripts done of how many.
  std::function<void(std::string_view what, int64_t done, int64_t total)> on_progress;
};

struct ClauseResult {
  enum class Verdict : uint8_t { kPass, kFail, kUnsupported, kNotRun };

  std::string clause;  // "U5", "crash", "range"
  int32_t level = 0;
  std::string summary;
  Verdict verdict = Verdict::kNotRun;
  std::string what = {};    // of kFail: the first finding; of kNotRun: why, unless it is the level
  CacheScript script = {};  // of kFail: the smallest counterexample; no operations: it needs none
};

struct ConformResult {
  std::vector<ClauseResult> clauses;  // by level for L4, else in the order of the contract
  int64_t scripts = 0;                // that ran, shrinking apart
  bool conforms = false;              // nothing failed, and all that was asked for could run
};

// REQUIRES: the calling process has one thread.
ConformResult Conform(const ConformOptions& options);

// Whether the library at `path` can be loaded without ending the process: empty, or what happens.
// An Error of loading is no concern of this: PluginLibrary::Load says it again.
std::string LoadFault(const std::string& path, int32_t ms_max);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_CONFORM_H_
