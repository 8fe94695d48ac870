// RunScript with a probe, or with less to compare.
#ifndef LOCKSTEP_PROPERTIES_RUNNER_RUN_H_
#define LOCKSTEP_PROPERTIES_RUNNER_RUN_H_

#include "properties/runner/probe.h"
#include "properties/script_runner.h"

namespace lockstep::runner {

ScriptRun RunWithProbe(const CacheScript& script, const ScriptSubject& subject, Probe* probe);

// Compares nothing before the operation `first`: it was compared by another run of the same prefix.
ScriptRun RunComparingFrom(const CacheScript& script, const ScriptSubject& subject, int32_t first);

}  // namespace lockstep::runner

#endif  // LOCKSTEP_PROPERTIES_RUNNER_RUN_H_
