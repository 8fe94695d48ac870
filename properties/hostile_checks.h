// Level 4 of the conformance kit: what a cache must withstand, and what it must leave alone. Each
// check has one name, as the clauses of the contract have theirs.
#ifndef LOCKSTEP_PROPERTIES_HOSTILE_CHECKS_H_
#define LOCKSTEP_PROPERTIES_HOSTILE_CHECKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "caches/plugin_cache.h"
#include "properties/script_builder.h"
#include "properties/script_runner.h"

namespace lockstep {

// A call that no script can write down.
struct HostileCase {
  std::string name;                  // "a geometry of 0 layers"
  std::function<std::string()> run;  // one sentence about what is wrong; empty: nothing is
};

// Scripts and their judge, or cases. Judges and cases change the process that they run in: each
// runs in one of its own (isolated_run.h), alone or after others of the same check.
struct HostileCheck {
  std::string_view clause;   // "range"
  std::string_view summary;  // what holds
  std::vector<CacheScript> scripts = {};
  ScriptJudge judge = {};
  std::vector<HostileCase> cases = {};
  bool unsupported = false;   // as declared; nothing of it may run
  bool crashes_only = false;  // it is about how the process ends: the judge finds nothing itself
};

struct HostileOptions {
  std::shared_ptr<const PluginLibrary> plugin;
  ScriptTarget target;
  uint64_t seed = 1;
  int32_t scripts = 100;  // random ones, of each check that takes such
  int32_t operations = 40;
};

// In the order in which they are reported.
std::vector<HostileCheck> HostileChecks(const HostileOptions& options);

// The checks that need no script, for HostileChecks.
std::vector<HostileCase> GeometryCases(std::shared_ptr<const PluginLibrary> plugin);
std::vector<HostileCase> SaveCases(std::shared_ptr<const PluginLibrary> plugin);
// Two caches on a thread each; or, `related`, a cache and its fork.
std::vector<HostileCase> ThreadCases(std::shared_ptr<const PluginLibrary> plugin, bool related,
                                     uint64_t seed);

// The plug-in as the runner's subject.
ScriptSubject PluginSubject(std::shared_ptr<const PluginLibrary> plugin);

}  // namespace lockstep

#endif  // LOCKSTEP_PROPERTIES_HOSTILE_CHECKS_H_
