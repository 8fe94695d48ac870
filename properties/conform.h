// The conformance kit: a cache that somebody else wrote, against every clause of the contract that
// scripts and the engine can judge.
//
//   L0  protocol and gating: what is refused, and with which status
//   L1  bytes: rows, lengths, gaps, rollbacks
//   L2  logits: the engine runs on the plug-in, direct and legacy, against the model cache
//   L3  sharing: forks
//
// Every script and the engine run in a process of their own.
#ifndef LOCKSTEP_PROPERTIES_CONFORM_H_
#define LOCKSTEP_PROPERTIES_CONFORM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "caches/plugin_cache.h"
#include "properties/script.h"
#include "properties/script_runner.h"

namespace lockstep {

struct ConformOptions {
  std::shared_ptr<const PluginLibrary> plugin;
  int32_t level = 3;  // the highest that runs
  uint64_t seed = 1;
  int32_t scripts = 1500;
  int32_t operations = 40;                        // a script
  int32_t seconds_max = 5;                        // of one script
  std::function<void(int32_t script)> on_script;  // progress, may be empty
};

struct ClauseResult {
  enum class Verdict : uint8_t { kPass, kFail, kUnsupported, kNotRun };

  std::string clause;  // "U5", or "crash", "hang"
  int32_t level = 0;
  std::string summary;
  Verdict verdict = Verdict::kNotRun;
  std::string what = {};    // of kFail: the first finding
  CacheScript script = {};  // of kFail: the smallest counterexample; no operations for L2
};

struct ConformResult {
  std::vector<ClauseResult> clauses;  // in the order of the contract, then what has no clause
  int64_t scripts = 0;
  bool conforms = false;  // nothing failed
};

ConformResult Conform(const ConformOptions& options);

// A plug-in as the runner's subject.
ScriptSubject PluginSubject(std::shared_ptr<const PluginLibrary> plugin);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_CONFORM_H_
